# SPDX-License-Identifier: BSD-2-Clause
#
# Tests on other kernels and machines, emulated: kernels/doc.go.
#
#   make test-kernels                              all kernels, default packages
#   make test-kernels KERNELS='-only s390x -v' KERNEL_PACKAGES=./usdt
#   make test-kernels-quick                        some kernels
#   make kernels-setup                             installs compilers (as root)

GO ?= go
# flags of the matrix command
KERNELS ?=
# the packages to test; those that the command knows where there are none
KERNEL_PACKAGES ?=

.PHONY: test-kernels test-kernels-quick kernels-setup

test-kernels: kernels-setup
	$(GO) -C kernels run . matrix $(KERNELS) $(KERNEL_PACKAGES)

test-kernels-quick: kernels-setup
	$(GO) -C kernels run . matrix -quick $(KERNELS) $(KERNEL_PACKAGES)

kernels-setup:
	$(GO) -C kernels run . setup
