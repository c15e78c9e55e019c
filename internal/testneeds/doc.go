// SPDX-License-Identifier: BSD-2-Clause

// Package testneeds is the one place where tests are skipped.
//
// A test that cannot run everywhere says what it needs, before it does
// anything else:
//
//	testneeds.Kernel(t, "6.6", "uprobe_multi links")
//	testneeds.Feature(t, "6.0", "sleepable programs on uprobes", err)
//	testneeds.Only(t, "no other machine has segment prefixes", "amd64", "386")
//	readelf := testneeds.Tool(t, "readelf", "binutils")
//	testneeds.Root(t)
//
// A skip names what is missing: a version of the kernel, a machine, a tool, a
// privilege. What is there is never a reason to skip. A feature that is missing
// on a kernel of the version that has it fails the test, and so does an error
// other than "not supported": no test is skipped because of the failure that it
// is there to find.
//
// Where the environment variable CI is "true", all tools and privileges are
// said to be there, and a test that lacks one fails. What remains to be skipped
// is for another kernel or another machine.
package testneeds
