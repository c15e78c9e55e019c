// SPDX-License-Identifier: BSD-2-Clause

// Package docs reads the Markdown files of this repository and finds what is
// not true in them, as far as that can be known without running anything.
// Command transcript runs the rest.
//
// Every fenced block of code says where it comes from, in a comment before it:
//
//	<!-- workload: NAME -->       commands of the kind "console", which command transcript runs
//	<!-- file: PATH -->           the content of a file, without its licence
//	<!-- file: PATH START -->     its lines from the one that begins with START to the next "}" or "};"
//	<!-- body: PATH START -->     the lines between these two, without what all are indented
//	<!-- not run: REASON -->      nothing compares it
//
// A path is relative to the Markdown file. What files have is compiled, or
// tested, where the file is. Blocks of the kinds json and yaml are parsed.
package docs
