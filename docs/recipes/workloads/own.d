provider shop {
	probe sell__start();
	probe sold(const char *receipt, int number, int total);
	probe sell__done();
};
