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
 * Compile with the root of this module ahead of other include directories,
 * with a target machine, and with -g, because maps are declared in BTF:
 *
 *	clang -O2 -g -target bpf -D__TARGET_ARCH_x86 -I<root of gousdt> ...
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
 * A probe's arguments are numbered from 0. The first 12 can be read.
 *
 * Everything works in programs of SEC("usdt"), SEC("usdt.s") and of the
 * uprobe sections, in subprograms that are given the context, and on kernels
 * from 5.10. Programs need a licence compatible with the GPL, because that is
 * what the helpers that read memory need.
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
 * BPF_USDT_MAX_IP_CNT is the number of sites, counted once for each place in
 * memory, that can be attached on a kernel before 5.15. Later kernels tell
 * the program its site by a cookie; the Go side then makes the map as small
 * as a map can be.
 */
#ifndef BPF_USDT_MAX_IP_CNT
#define BPF_USDT_MAX_IP_CNT (4 * BPF_USDT_MAX_SPEC_CNT)
#endif

/*
 * BPF_USDT_SLEEPABLE may be defined where all programs of an object that read
 * arguments are in SEC("usdt.s"). Arguments in memory are then read by a
 * helper that waits for pages to come in, where else an argument in a page
 * that is not there reads as -EFAULT.
 */
#ifdef BPF_USDT_SLEEPABLE
#define __bpf_usdt_read_user bpf_copy_from_user
#else
#define __bpf_usdt_read_user bpf_probe_read_user
#endif

/* The number of arguments that a program can read. */
#define BPF_USDT_MAX_ARG_CNT 12

/*
 * Where an argument is. The numbers, and the structures below, are shared
 * with argspec.Encode on the Go side.
 */
enum __bpf_usdt_kind {
	__BPF_USDT_UNAVAILABLE = 0,
	__BPF_USDT_CONSTANT = 1,
	__BPF_USDT_REGISTER = 2,
	__BPF_USDT_MEMORY = 3,
};

#define __BPF_USDT_SIGNED 1
#define __BPF_USDT_ADDRESS32 2 /* a 32-bit program: addresses wrap */
#define __BPF_USDT_NO_SLOT 0xff

struct __bpf_usdt_arg {
	__u64 value; /* the constant, extended to 64 bits; or the displacement */
	__u8 kind;
	__u8 size; /* in bytes: 1, 2, 4 or 8 where the argument can be read */
	__u8 flags;
	__u8 shift; /* bits to shift the register right: 8 for %ah */
	__u8 base;  /* slot of the register, or of the base of the address */
	__u8 index; /* slot of the index of the address */
	__u8 scale; /* bits to shift the index left */
	__u8 window; /* offset in the window plus 1, or 0 if not in it */
};

/*
 * A window is memory that holds several of the arguments, neighbours on the
 * stack as a rule: one read of it costs hardly more than the read of a single
 * argument. It ends with its last argument, and each argument lies inside one
 * of its words of 8 bytes.
 */
#define __BPF_USDT_WINDOW_WORDS 12

struct __bpf_usdt_spec {
	struct __bpf_usdt_arg args[BPF_USDT_MAX_ARG_CNT];
	__u64 cookie;
	__s16 count;
	__u8 window_base; /* slot */
	__u8 window_size; /* in bytes; 0 for no window */
	__s32 window_displacement;
};

_Static_assert(sizeof(struct __bpf_usdt_spec) == 208,
	       "the Go side writes specs of 208 bytes");

/*
 * The specs, by ID. Declared by sizes, so that tools that turn the types of
 * maps into Go leave the structures above alone. Strong symbols, because
 * cilium/ebpf refuses weak ones.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BPF_USDT_MAX_SPEC_CNT);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct __bpf_usdt_spec));
} __bpf_usdt_specs SEC(".maps");

/* The ID of the spec by the address of the site, where there is no cookie. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, BPF_USDT_MAX_IP_CNT);
	__uint(key_size, sizeof(__u64));
	__uint(value_size, sizeof(__u32));
} __bpf_usdt_ip_to_spec_id SEC(".maps");

/*
 * Whether the kernel gives a uprobe a cookie (5.15). Set by the Go side before
 * loading; the verifier removes the branch that is not taken, so that an old
 * kernel never sees a helper that it does not have.
 */
const volatile _Bool __bpf_usdt_has_cookie = 1;

/*
 * The context of a program is the kernel's struct pt_regs. It is read in
 * words, called slots here; the Go side knows which slot holds which register.
 * The verifier wants every access to the context at a constant offset, and
 * until 5.12 every access to the stack too. So a word is found by comparing
 * its number, in halves, and each load is in assembly: a compiler would make
 * one load at a computed address of them all, and one jump table of a switch.
 */
#define __BPF_USDT_LOAD(n)                                                     \
	asm volatile("%0 = *(" __BPF_USDT_WORD " *)(%1 + %2)"                  \
		     : "=r"(word)                                              \
		     : "r"(words), "i"((n) * __BPF_USDT_WORD_SIZE)             \
		     : "memory")
#define __BPF_USDT_LOAD2(n)                                                    \
	if (slot < (n) + 1)                                                    \
		__BPF_USDT_LOAD(n);                                            \
	else                                                                   \
		__BPF_USDT_LOAD((n) + 1)
#define __BPF_USDT_LOAD4(n)                                                    \
	if (slot < (n) + 2) {                                                  \
		__BPF_USDT_LOAD2(n);                                           \
	} else {                                                               \
		__BPF_USDT_LOAD2((n) + 2);                                     \
	}
#define __BPF_USDT_LOAD8(n)                                                    \
	if (slot < (n) + 4) {                                                  \
		__BPF_USDT_LOAD4(n)                                            \
	} else {                                                               \
		__BPF_USDT_LOAD4((n) + 4)                                      \
	}
#define __BPF_USDT_LOAD16(n)                                                   \
	if (slot < (n) + 8) {                                                  \
		__BPF_USDT_LOAD8(n)                                            \
	} else {                                                               \
		__BPF_USDT_LOAD8((n) + 8)                                      \
	}

#define __BPF_USDT_WORD "u64"
#define __BPF_USDT_WORD_SIZE 8

/*
 * The program counter's slot, and the slots from 16 that hold registers which
 * an argument can name; the first 16 are the same for all.
 */
#if defined(__TARGET_ARCH_x86) || defined(__x86_64__)
/* r15 .. rdi, orig_rax, rip, cs, eflags, rsp, ss */
#define __BPF_USDT_IP_SLOT 16
#define __BPF_USDT_LOAD_FROM_16                                                \
	if (slot < 20) {                                                       \
		__BPF_USDT_LOAD4(16)                                           \
	}
#elif defined(__TARGET_ARCH_arm64) || defined(__aarch64__)
/* x0 .. x30, sp, pc */
#define __BPF_USDT_IP_SLOT 32
#elif defined(__TARGET_ARCH_s390) || defined(__s390x__)
/* a word of the kernel's own, mask and address of the psw, r0 .. r15 */
#define __BPF_USDT_IP_SLOT 2
#define __BPF_USDT_LOAD_FROM_16                                                \
	if (slot < 20) {                                                       \
		__BPF_USDT_LOAD4(16)                                           \
	}
#elif defined(__TARGET_ARCH_riscv) || (defined(__riscv) && __riscv_xlen == 64)
/* pc, then x1 .. x31 */
#define __BPF_USDT_IP_SLOT 0
#elif defined(__TARGET_ARCH_powerpc) || defined(__powerpc64__)
/* r0 .. r31, nip */
#define __BPF_USDT_IP_SLOT 32
#elif defined(__TARGET_ARCH_loongarch) || defined(__loongarch64)
/* r0 .. r31; then a word of the kernel's own, and era */
#define __BPF_USDT_IP_SLOT 33
#elif defined(__TARGET_ARCH_arm) || defined(__arm__)
/* r0 .. r15, which is the program counter; no windows on 32-bit machines */
#define __BPF_USDT_IP_SLOT 15
#define __BPF_USDT_LOAD_FROM_16
#undef __BPF_USDT_WORD
#undef __BPF_USDT_WORD_SIZE
#define __BPF_USDT_WORD "u32"
#define __BPF_USDT_WORD_SIZE 4
#else
#error "usdt.bpf.h: unknown target machine: define __TARGET_ARCH_x86 (or _arm64, _s390, _riscv, _powerpc, _loongarch, _arm), or name one with bpf2go -target"
#endif

#ifndef __BPF_USDT_LOAD_FROM_16
#define __BPF_USDT_LOAD_FROM_16                                                \
	if (slot < 32) {                                                       \
		__BPF_USDT_LOAD16(16)                                          \
	} else if (slot == 32) {                                               \
		__BPF_USDT_LOAD(32);                                           \
	} else if (slot == 33) {                                               \
		__BPF_USDT_LOAD(33);                                           \
	}
#endif

/* Keep the compiler from proving away a bound that the verifier must see. */
#define __bpf_usdt_opaque(variable) asm volatile("" : "+r"(variable))

/* The register in a slot; 0 for a slot that is none. */
static __always_inline __u64 __bpf_usdt_word(struct pt_regs *words, __u64 slot)
{
	__u64 word = 0;

	if (slot < 16) {
		__BPF_USDT_LOAD16(0)
	} else {
		__BPF_USDT_LOAD_FROM_16
	}
	return word;
}

/* The same as a call, where it is rarely needed. */
static __noinline __attribute__((unused)) __u64
__bpf_usdt_word_call(struct pt_regs *ctx, __u8 slot)
{
	return __bpf_usdt_word(ctx, slot);
}

/* A word of the window. */
static __always_inline __u64
__bpf_usdt_window_word(const __u64 *words, __u64 slot)
{
	__u64 word = 0;

	if (slot < 8) {
		__BPF_USDT_LOAD8(0)
	} else if (slot < __BPF_USDT_WINDOW_WORDS) {
		__BPF_USDT_LOAD4(8)
	}
	return word;
}

/* The spec of the site that was hit, or NULL. */
static __always_inline struct __bpf_usdt_spec *
__bpf_usdt_lookup(struct pt_regs *ctx)
{
	__u32 id;

	if (__bpf_usdt_has_cookie) {
		id = bpf_get_attach_cookie(ctx);
	} else {
		__u64 ip = __bpf_usdt_word(ctx, __BPF_USDT_IP_SLOT);
		__u32 *found = bpf_map_lookup_elem(&__bpf_usdt_ip_to_spec_id, &ip);

		if (!found)
			return 0;
		id = *found;
	}
	return bpf_map_lookup_elem(&__bpf_usdt_specs, &id);
}

/*
 * Read one argument, out of the window if that was read. *value is 0 on every
 * error.
 */
static __always_inline long
__bpf_usdt_read(struct pt_regs *ctx, const struct __bpf_usdt_arg *arg,
		const __u64 *window, _Bool has_window, __u64 *value)
{
	__u64 word = 0, size = arg->size, unused = 64 - 8 * size;
	__u8 kind = arg->kind;

	if (kind == __BPF_USDT_CONSTANT) {
		*value = arg->value;
		return 0;
	}
	*value = 0;
	if (kind == __BPF_USDT_UNAVAILABLE)
		return -EOPNOTSUPP;

	/* Put the operand into the upper bytes of word. */
	if (kind == __BPF_USDT_REGISTER) {
		word = __bpf_usdt_word(ctx, arg->base) >> arg->shift << unused;
	} else if (has_window && arg->window) {
		__u8 offset = arg->window - 1, before = 8 * (offset % 8);

		word = __bpf_usdt_window_word(window, offset / 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
		word <<= before;
#else
		word <<= (unused - before) & 63;
#endif
	} else {
		__u64 address = __bpf_usdt_word(ctx, arg->base) + arg->value;
		long err;

		if (arg->index != __BPF_USDT_NO_SLOT)
			address += __bpf_usdt_word_call(ctx, arg->index)
				   << arg->scale;
		if (arg->flags & __BPF_USDT_ADDRESS32)
			address = (__u32)address;
		if (size > sizeof(word))
			return -EOPNOTSUPP;
		__bpf_usdt_opaque(size);
		if (size == 0)
			return -EOPNOTSUPP;
		/* Never more than the operand: a page may end behind it. */
		err = __bpf_usdt_read_user(&word, size, (void *)address);
		if (err)
			return err;
#if __BYTE_ORDER__ != __ORDER_BIG_ENDIAN__
		word <<= unused;
#endif
	}

	if (arg->flags & __BPF_USDT_SIGNED)
		*value = (__s64)word >> unused;
	else
		*value = word >> unused;
	return 0;
}

/*
 * Read the first count arguments; one that cannot be read is 0. A window that
 * cannot be read, because a part of it is in a page that is not there, leaves
 * its arguments to be read one by one.
 */
static __noinline __attribute__((unused)) void
__bpf_usdt_read_many(struct pt_regs *ctx, const struct __bpf_usdt_spec *spec,
		     __u64 *values, __u32 count)
{
	__u64 window[__BPF_USDT_WINDOW_WORDS], size = spec->window_size;
	_Bool has_window = 0;
	__u32 i;

	if (size <= sizeof(window)) {
		__bpf_usdt_opaque(size);
		if (size) {
			__u64 address =
				__bpf_usdt_word_call(ctx, spec->window_base) +
				spec->window_displacement;

			/* The verifier asks for it: size is a variable. */
			for (i = 0; i < __BPF_USDT_WINDOW_WORDS; i++)
				window[i] = 0;
			has_window = !__bpf_usdt_read_user(window, size,
							   (void *)address);
		}
	}
	for (i = 0; i < count; i++)
		__bpf_usdt_read(ctx, &spec->args[i], window, has_window,
				&values[i]);
}

/* The same, with the spec looked up. */
static __always_inline void
__bpf_usdt_read_all(struct pt_regs *ctx, __u64 *values, __u32 count)
{
	const struct __bpf_usdt_spec *spec = __bpf_usdt_lookup(ctx);
	__u32 i;

	if (spec)
		__bpf_usdt_read_many(ctx, spec, values, count);
	else
		for (i = 0; i < count; i++)
			values[i] = 0;
}

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
 *	-EOPNOTSUPP	the argument cannot be fetched (usdt.Link says why)
 *	-EFAULT		the argument is in memory that cannot be read now
 *
 * Each call looks the site up anew: BPF_USDT is cheaper for several arguments.
 */
static __noinline __attribute__((unused)) int
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
static __noinline __attribute__((unused)) int
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

/* The values as a list of macro arguments, each led by a comma. */
#define __BPF_USDT_VALUES_0
#define __BPF_USDT_VALUES_1 , (void *)__usdt_values[0]
#define __BPF_USDT_VALUES_2 __BPF_USDT_VALUES_1, (void *)__usdt_values[1]
#define __BPF_USDT_VALUES_3 __BPF_USDT_VALUES_2, (void *)__usdt_values[2]
#define __BPF_USDT_VALUES_4 __BPF_USDT_VALUES_3, (void *)__usdt_values[3]
#define __BPF_USDT_VALUES_5 __BPF_USDT_VALUES_4, (void *)__usdt_values[4]
#define __BPF_USDT_VALUES_6 __BPF_USDT_VALUES_5, (void *)__usdt_values[5]
#define __BPF_USDT_VALUES_7 __BPF_USDT_VALUES_6, (void *)__usdt_values[6]
#define __BPF_USDT_VALUES_8 __BPF_USDT_VALUES_7, (void *)__usdt_values[7]
#define __BPF_USDT_VALUES_9 __BPF_USDT_VALUES_8, (void *)__usdt_values[8]
#define __BPF_USDT_VALUES_10 __BPF_USDT_VALUES_9, (void *)__usdt_values[9]
#define __BPF_USDT_VALUES_11 __BPF_USDT_VALUES_10, (void *)__usdt_values[10]
#define __BPF_USDT_VALUES_12 __BPF_USDT_VALUES_11, (void *)__usdt_values[11]

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
		if (__BPF_USDT_COUNT(args))                                    \
			__bpf_usdt_read_all(ctx, __usdt_values,                \
					    __BPF_USDT_COUNT(args));           \
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
