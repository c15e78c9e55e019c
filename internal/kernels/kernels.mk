# SPDX-License-Identifier: BSD-2-Clause
#
# Tests on other kernels and machines, emulated: internal/kernels/README.md.
#
#   make test-kernels                              all kernels, default packages
#   make test-kernels KERNELS='-only s390x -v' KERNEL_PACKAGES=./usdt
#   make test-kernels-quick                        some kernels
#   make test-hostile-kernels      what users of the host may try, with the costs
#   make kernels-setup                             installs compilers (as root)

GO ?= go
# flags of internal/kernels/run
KERNELS ?=
# the packages to test; those that it knows where there are none
KERNEL_PACKAGES ?=

# where make test-hostile-kernels does what make test-hostile does here
HOSTILE_KERNELS ?= amd64/6.1,amd64/6.12,amd64/newest

.PHONY: test-kernels test-kernels-quick test-hostile-kernels kernels-setup

test-kernels: kernels-setup
	internal/kernels/run $(KERNELS) $(KERNEL_PACKAGES)

test-kernels-quick: kernels-setup
	internal/kernels/run -quick $(KERNELS) $(KERNEL_PACKAGES)

# The rows of the table are among the tests' output. Very many files take more
# memory than a machine has by default.
test-hostile-kernels: kernels-setup
	GOUSDT_HOSTILE=/tmp/costs internal/kernels/run -only $(HOSTILE_KERNELS) -memory 4096 \
		-parallel 1 -v $(HOSTILE_PACKAGES)

kernels-setup:
	internal/setup/install demo kernels
