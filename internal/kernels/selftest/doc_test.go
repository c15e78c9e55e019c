// SPDX-License-Identifier: BSD-2-Clause

// Package selftest tests the ground that the tests of this module stand on:
// that a kernel is the one that was asked for, that a guest has what tests
// expect there, and that the kernel has the features that its version
// promises. A feature that is missing on a kernel that should have it is a
// failure, never a reason to skip: so the versions that the documentation names
// are tested.
//
// It imports nothing of this module but internal/testneeds, so that a failure
// here is not one of the code under test.
package selftest
