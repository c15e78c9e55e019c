/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * usdt.bpf.h: how a BPF program reads the arguments of the USDT probe that
 * it runs on. The Go side is package usdt of this module: it attaches the
 * program and fills the maps below.
 *
 *	#include <linux/bpf.h>		(or "vmlinux.h")
 *	#include <bpf/usdt.bpf.h>
 *
 *	char LICENSE[] SEC("license") = "Dual BSD/GPL";
 *
 *	SEC("usdt")
 *	int BPF_USDT(on_query, const char *text, int length)
 *	{
 *		bpf_printk("%d bytes in process %d", length,
 *			   bpf_get_current_pid_tgid() >> 32);
 *		return 0;
 *	}
 *
 * Compile with the folder usdt of this module ahead of other include folders,
 * with a target machine, and with -g, because maps are declared in BTF:
 *
 *	clang -O2 -g -target bpf -D__TARGET_ARCH_x86 -I<gousdt>/usdt ...
 *
 * bpf2go sets the machine by itself when -target names one, such as amd64.
 *
 * What is offered, with the meanings of libbpf's header of the same name:
 *
 *	BPF_USDT(name, args...)		define a program with typed arguments
 *	bpf_usdt_arg(ctx, n, &val)	read one argument
 *	bpf_usdt_arg_cnt(ctx)		how many arguments the probe has
 *	bpf_usdt_arg_size(ctx, n)	how many bytes an argument has
 *	bpf_usdt_cookie(ctx)		the value given when attaching
 *
 * and beyond it:
 *
 *	bpf_usdt_arg_address(ctx, n, &address)	where in memory an argument is
 *
 * A probe's arguments are numbered from 0. The first 12 can be read.
 *
 * Everything works in programs of SEC("usdt"), SEC("usdt.s") and of the
 * uprobe sections, in subprograms that are given the context, and on kernels
 * from 5.10. Programs need a licence compatible with the GPL, because the
 * helpers that read memory need one. Only package usdt can prepare and attach
 * them (usdt.NewManager): libbpf would fill maps of these names with other
 * contents.
 *
 * In C++, include it inside extern "C", and have the programs there, too. The
 * definitions of the helpers in libbpf's bpf_helper_defs.h are C, and have to be
 * replaced by ones that C++ takes.
 *
 * Several files that include this one can be linked into one object, by
 * "bpftool gen object". Each of them defines BPF_USDT_SEVERAL_FILES first, and
 * the object is loaded by libbpf.LoadCollectionSpec.
 */
#ifndef GOUSDT_USDT_BPF_H
#define GOUSDT_USDT_BPF_H

#ifdef __USDT_BPF_H__
#error "usdt.bpf.h of libbpf is included too: put the root of gousdt ahead of it among the include directories"
#endif

#include <asm-generic/errno.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/*
 * BPF_USDT_MAX_SPEC_CNT, which a program may define before it includes this
 * file, is the number of different argument descriptions that can be attached
 * at the same time. Sites whose arguments are in the same places and that
 * have the same cookie share one. The Go side can choose another number
 * before the maps are created.
 */
#ifndef BPF_USDT_MAX_SPEC_CNT
#define BPF_USDT_MAX_SPEC_CNT 256
#endif

/*
 * BPF_USDT_MAX_IP_CNT is there for programs that define it, as with libbpf's
 * header: the Go side needs no map of addresses, and makes it as small as a map
 * can be. On kernels before 5.15 it puts the sites there by other means.
 */
#ifndef BPF_USDT_MAX_IP_CNT
#define BPF_USDT_MAX_IP_CNT (4 * BPF_USDT_MAX_SPEC_CNT)
#endif

/*
 * BPF_USDT_SLEEPABLE may be defined if all programs of an object that read
 * arguments are in SEC("usdt.s"), which needs 6.0. Arguments in memory are then
 * read by a helper that waits for their pages. Without it, an argument in a
 * page that is not present reads as -EFAULT.
 */
#ifdef BPF_USDT_SLEEPABLE
#define __bpf_usdt_read_user bpf_copy_from_user
#else
#define __bpf_usdt_read_user bpf_probe_read_user
#endif

/* The number of arguments that a program can read. */
#define BPF_USDT_MAX_ARG_CNT 12

#include "usdt_spec.bpf.h"

/*
 * bpf_usdt_arg_cnt returns how many arguments the probe has, at most 12, or
 * -ESRCH where the program was not attached through package usdt.
 */
static __always_inline int bpf_usdt_arg_cnt(struct pt_regs *ctx)
{
	struct __bpf_usdt_spec *spec = __bpf_usdt_lookup(ctx);

	return spec ? spec->count : -ESRCH;
}

/*
 * bpf_usdt_arg reads argument number arg_num, counted from 0, into *res,
 * extended to 64 bits by the size and the sign that the probe's author gave
 * it; the bits of a floating-point number are taken as they are. It returns 0
 * or a negative error, and then *res is 0:
 *
 *	-ESRCH		not attached through package usdt
 *	-ENOENT		the probe has no such argument, or it is past the 12th
 *	-EOPNOTSUPP	the argument cannot be fetched (usdt.Site says why)
 *	-EFAULT		the argument is in memory that cannot be read now
 *
 * Each call looks the site up anew: BPF_USDT is cheaper for several arguments.
 */
__BPF_USDT_FUNCTION int
bpf_usdt_arg(struct pt_regs *ctx, __u64 arg_num, long *res)
{
	struct __bpf_usdt_spec *spec = __bpf_usdt_lookup(ctx);

	*res = 0;
	if (!spec)
		return -ESRCH;
	__bpf_usdt_opaque(arg_num);
	if (arg_num >= BPF_USDT_MAX_ARG_CNT)
		return -ENOENT;
	if ((__s64)arg_num >= spec->count)
		return -ENOENT;
	return __bpf_usdt_read(ctx, &spec->args[arg_num], 0, 0, (__u64 *)res);
}

/*
 * bpf_usdt_arg_size returns the size of argument number arg_num in bytes, as
 * the probe's author gave it, also for an argument that cannot be fetched.
 * Errors are those of bpf_usdt_arg; -EOPNOTSUPP stands for a size that is not
 * known or above 255.
 */
__BPF_USDT_FUNCTION int
bpf_usdt_arg_size(struct pt_regs *ctx, __u64 arg_num)
{
	struct __bpf_usdt_spec *spec = __bpf_usdt_lookup(ctx);
	int size;

	if (!spec)
		return -ESRCH;
	__bpf_usdt_opaque(arg_num);
	if (arg_num >= BPF_USDT_MAX_ARG_CNT)
		return -ENOENT;
	if ((__s64)arg_num >= spec->count)
		return -ENOENT;
	size = spec->args[arg_num].size;
	return size ? size : -EOPNOTSUPP;
}

/*
 * bpf_usdt_arg_address puts the address of argument number arg_num into
 * *address, for an argument in the memory of the traced program: a number on
 * its stack, a variable, or a structure of any size. -EOPNOTSUPP stands for an
 * argument that is not in memory; the other errors are those of bpf_usdt_arg.
 */
__BPF_USDT_FUNCTION int
bpf_usdt_arg_address(struct pt_regs *ctx, __u64 arg_num, __u64 *address)
{
	struct __bpf_usdt_spec *spec = __bpf_usdt_lookup(ctx);
	__u8 kind;

	*address = 0;
	if (!spec)
		return -ESRCH;
	__bpf_usdt_opaque(arg_num);
	if (arg_num >= BPF_USDT_MAX_ARG_CNT)
		return -ENOENT;
	if ((__s64)arg_num >= spec->count)
		return -ENOENT;
	kind = spec->args[arg_num].kind;
	if (kind != __BPF_USDT_MEMORY && kind != __BPF_USDT_BYTES)
		return -EOPNOTSUPP;
	*address = __bpf_usdt_address(ctx, &spec->args[arg_num]);
	return 0;
}

/*
 * bpf_usdt_cookie returns the 64-bit value that was given when the probe was
 * attached, or 0. It is not the kernel's cookie (bpf_get_attach_cookie), which
 * holds the ID of the spec.
 */
static __always_inline long bpf_usdt_cookie(struct pt_regs *ctx)
{
	struct __bpf_usdt_spec *spec = __bpf_usdt_lookup(ctx);

	return spec ? spec->cookie : 0;
}

/* How many macro arguments there are. */
#define __BPF_USDT_NTH(_, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12,   \
		       a13, a14, a15, a16, n, ...)                             \
	n
#define __BPF_USDT_COUNT(...)                                                  \
	__BPF_USDT_NTH(_, ##__VA_ARGS__, at_most_12_arguments,                 \
		       at_most_12_arguments, at_most_12_arguments,             \
		       at_most_12_arguments, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3,  \
		       2, 1, 0)

#define __BPF_USDT_CONCAT(a, b) a##b
#define __BPF_USDT_APPLY(a, b) __BPF_USDT_CONCAT(a, b)

/*
 * ___bpf_usdt_args is ctx and the first arguments, each read by a call of
 * bpf_usdt_arg, as a list of macro arguments. Macros like BPF_USDT in other
 * code use this name of libbpf's header.
 */
#define ___bpf_usdt_args(args...)                                              \
	ctx __BPF_USDT_APPLY(__BPF_USDT_READ_, __BPF_USDT_COUNT(args))

#define __BPF_USDT_READ(n)                                                     \
	({                                                                     \
		long __usdt_value;                                             \
		bpf_usdt_arg(ctx, n, &__usdt_value);                           \
		(void *)__usdt_value;                                          \
	})
#define __BPF_USDT_READ_0
#define __BPF_USDT_READ_1 , __BPF_USDT_READ(0)
#define __BPF_USDT_READ_2 __BPF_USDT_READ_1, __BPF_USDT_READ(1)
#define __BPF_USDT_READ_3 __BPF_USDT_READ_2, __BPF_USDT_READ(2)
#define __BPF_USDT_READ_4 __BPF_USDT_READ_3, __BPF_USDT_READ(3)
#define __BPF_USDT_READ_5 __BPF_USDT_READ_4, __BPF_USDT_READ(4)
#define __BPF_USDT_READ_6 __BPF_USDT_READ_5, __BPF_USDT_READ(5)
#define __BPF_USDT_READ_7 __BPF_USDT_READ_6, __BPF_USDT_READ(6)
#define __BPF_USDT_READ_8 __BPF_USDT_READ_7, __BPF_USDT_READ(7)
#define __BPF_USDT_READ_9 __BPF_USDT_READ_8, __BPF_USDT_READ(8)
#define __BPF_USDT_READ_10 __BPF_USDT_READ_9, __BPF_USDT_READ(9)
#define __BPF_USDT_READ_11 __BPF_USDT_READ_10, __BPF_USDT_READ(10)
#define __BPF_USDT_READ_12 __BPF_USDT_READ_11, __BPF_USDT_READ(11)

/* A value that converts to the type of the parameter. */
#ifdef __cplusplus
extern "C++" {
struct __bpf_usdt_value {
	__u64 bits;
	template <typename type> __always_inline operator type() const
	{
		return (type)bits;
	}
};
}
#define __BPF_USDT_VALUE(n) __bpf_usdt_value{__usdt_values[n]}
#else
#define __BPF_USDT_VALUE(n) (void *)__usdt_values[n]
#endif

/* The values as a list of macro arguments, each led by a comma. */
#define __BPF_USDT_VALUES_0
#define __BPF_USDT_VALUES_1 , __BPF_USDT_VALUE(0)
#define __BPF_USDT_VALUES_2 __BPF_USDT_VALUES_1, __BPF_USDT_VALUE(1)
#define __BPF_USDT_VALUES_3 __BPF_USDT_VALUES_2, __BPF_USDT_VALUE(2)
#define __BPF_USDT_VALUES_4 __BPF_USDT_VALUES_3, __BPF_USDT_VALUE(3)
#define __BPF_USDT_VALUES_5 __BPF_USDT_VALUES_4, __BPF_USDT_VALUE(4)
#define __BPF_USDT_VALUES_6 __BPF_USDT_VALUES_5, __BPF_USDT_VALUE(5)
#define __BPF_USDT_VALUES_7 __BPF_USDT_VALUES_6, __BPF_USDT_VALUE(6)
#define __BPF_USDT_VALUES_8 __BPF_USDT_VALUES_7, __BPF_USDT_VALUE(7)
#define __BPF_USDT_VALUES_9 __BPF_USDT_VALUES_8, __BPF_USDT_VALUE(8)
#define __BPF_USDT_VALUES_10 __BPF_USDT_VALUES_9, __BPF_USDT_VALUE(9)
#define __BPF_USDT_VALUES_11 __BPF_USDT_VALUES_10, __BPF_USDT_VALUE(10)
#define __BPF_USDT_VALUES_12 __BPF_USDT_VALUES_11, __BPF_USDT_VALUE(11)

/*
 * BPF_USDT defines a program whose parameters are the probe's first arguments:
 *
 *	SEC("usdt")
 *	int BPF_USDT(on_query, const char *text, int length) { ... }
 *
 * At most 12 parameters, integers or pointers, each converted from 64 bits as
 * C does. A parameter whose argument cannot be read is 0; ask bpf_usdt_arg
 * where the difference matters. The body may also use ctx, the
 * struct pt_regs *. All arguments together cost one look-up of the site, and a
 * program without parameters costs none.
 *
 * Of the 512 bytes of stack that a program has, the call that reads the
 * arguments takes 32. While they are read, the arguments take 16 bytes each and
 * 16 more. The body's variables reuse that room; only the arguments that the
 * body needs after a call take room beside them.
 */
#define BPF_USDT(name, args...)                                                \
	name(struct pt_regs *ctx);                                             \
	static __always_inline __typeof__(name(0))                             \
	__bpf_usdt_body_##name(                                                \
		struct pt_regs *ctx __attribute__((unused)), ##args);          \
	__typeof__(name(0)) name(struct pt_regs *ctx)                          \
	{                                                                      \
		__u64 __usdt_values[__BPF_USDT_COUNT(args) + 1];               \
                                                                               \
		if (__BPF_USDT_COUNT(args)) {                                  \
			const struct __bpf_usdt_spec *__usdt_spec =            \
				__bpf_usdt_lookup(ctx);                        \
			union {                                                \
				struct __bpf_usdt_reading reading;             \
				__u64 size[2 + 2 * __BPF_USDT_COUNT(args)];    \
			} __usdt;                                              \
                                                                               \
			__bpf_usdt_read_all(ctx, __usdt_spec, &__usdt.reading, \
					    __BPF_USDT_COUNT(args));           \
			__builtin_memcpy(__usdt_values, __usdt.reading.words,  \
					 8 * __BPF_USDT_COUNT(args));          \
		}                                                              \
		_Pragma("GCC diagnostic push")                                 \
		_Pragma("GCC diagnostic ignored \"-Wint-conversion\"")         \
		return __bpf_usdt_body_##name(ctx __BPF_USDT_APPLY(            \
			__BPF_USDT_VALUES_, __BPF_USDT_COUNT(args)));          \
		_Pragma("GCC diagnostic pop")                                  \
	}                                                                      \
	static __always_inline __typeof__(name(0))                             \
	__bpf_usdt_body_##name(                                                \
		struct pt_regs *ctx __attribute__((unused)), ##args)

#endif /* GOUSDT_USDT_BPF_H */
