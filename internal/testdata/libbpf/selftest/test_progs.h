/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * In the place of the header of the same name of Linux' selftests for BPF: what
 * prog_tests/usdt.c needs of it.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <bpf/libbpf.h>

typedef __u64 u64;

#define __weak __attribute__((weak))
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))

bool test__start_subtest(const char *name);
bool assert_that(bool holds, const char *name, long long got, long long want);

#define ASSERT_EQ(got, want, name) ({ \
	__typeof__(got) got_ = (got); \
	__typeof__(want) want_ = (want); \
	assert_that(got_ == want_, name, (long long)got_, (long long)want_); \
})
#define ASSERT_OK(err, name) ASSERT_EQ(err, 0, name)
#define ASSERT_NULL(pointer, name) ASSERT_EQ((long)(pointer), 0, name)
#define ASSERT_OK_PTR(pointer, name) assert_that((pointer) != NULL, name, errno, 0)
#define ASSERT_ERR_PTR(pointer, name) assert_that((pointer) == NULL, name, 0, errno)
