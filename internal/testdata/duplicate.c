/* SPDX-License-Identifier: BSD-2-Clause */

/* A second local symbol of the name that machine.c uses: nobody can say which of
   the two an argument means. */

__attribute__((used)) static volatile int gousdt_ambiguous = 2;
