provider shop {
	probe sell__start(const struct order *order);
	probe sold(const char *receipt, int number, int total);
	probe sell__done();
};
