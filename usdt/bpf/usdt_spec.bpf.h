/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * usdt_spec.bpf.h: the specs that the Go side writes, and how an argument is
 * read by one. Included by usdt.bpf.h alone, which is the file to read first.
 * Nothing here is for programs: names begin with two underscores, and change.
 */
#ifndef GOUSDT_USDT_SPEC_BPF_H
#define GOUSDT_USDT_SPEC_BPF_H

/*
 * Where an argument is. The numbers, and the structures below, are shared
 * with usdt/internal/sitespec on the Go side.
 */
enum __bpf_usdt_kind {
	__BPF_USDT_UNAVAILABLE = 0,
	__BPF_USDT_CONSTANT = 1,
	__BPF_USDT_REGISTER = 2,
	__BPF_USDT_MEMORY = 3,
	__BPF_USDT_SUM = 4, /* the value is the address itself */
	__BPF_USDT_BYTES = 5, /* in memory, but not a number that can be read */
};

#define __BPF_USDT_SIGNED 1
#define __BPF_USDT_ADDRESS32 2 /* a 32-bit program: addresses wrap */
#define __BPF_USDT_INDEX_ZERO_EXTENDED 4 /* from its lower 32 bits */
#define __BPF_USDT_INDEX_SIGN_EXTENDED 8
#define __BPF_USDT_BASE_ZERO_EXTENDED 16 /* from its lower 32 bits */
#define __BPF_USDT_NO_SLOT 0xff

struct __bpf_usdt_arg {
	__u64 value; /* the constant, extended to 64 bits; or the displacement */
	__u8 kind;
	__u8 size; /* in bytes: 1, 2, 4 or 8 where the argument can be read */
	__u8 flags;
	__u8 shift;  /* bits to shift the register right: 8 for %ah */
	__u8 base;   /* slot of the register, or of the base of the address */
	__u8 index;  /* slot of the index of the address */
	__u8 scale;  /* bits to shift the index left: 32 for edx of edx:eax */
	__u8 window; /* offset in the window plus 1; 0 for not in it */
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
 * A function that is in the object once, however many files include it. The Go
 * side makes it static for the verifier, which then knows what its arguments
 * point to. Not static here: a compiler may change the parameters of a static
 * function.
 */
#define __BPF_USDT_FUNCTION                                                    \
	__attribute__((weak, visibility("hidden"), noinline))

/*
 * A map that is in the object once. cilium/ebpf refuses weak maps, and so does
 * bpf2go; libbpf.LoadCollectionSpec takes them.
 */
#ifdef BPF_USDT_SEVERAL_FILES
#define __BPF_USDT_MAP SEC(".maps") __attribute__((weak))
#else
#define __BPF_USDT_MAP SEC(".maps")
#endif

/*
 * The specs, by ID. Declared by sizes, so that tools that turn the types of
 * maps into Go leave the structures above alone.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BPF_USDT_MAX_SPEC_CNT);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct __bpf_usdt_spec));
} __bpf_usdt_specs __BPF_USDT_MAP;

/*
 * The ID of the spec by the address of the site, where there is no cookie. Only
 * other loaders fill it. The Go side has programs always ask for the cookie.
 * Where there is none, it replaces the call by instructions that find the ID in
 * this map, of which it then makes an array.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, BPF_USDT_MAX_IP_CNT);
	__uint(key_size, sizeof(__u64));
	__uint(value_size, sizeof(__u32));
} __bpf_usdt_ip_to_spec_id __BPF_USDT_MAP;

/*
 * Whether programs ask for the BPF cookie of a uprobe (5.15). The verifier
 * removes the branch that is not taken.
 */
#ifdef __cplusplus
#define __BPF_USDT_BOOL bool
#else
#define __BPF_USDT_BOOL _Bool
#endif
/* Declared first, or a constant would be one of this file alone in C++. */
extern const volatile __BPF_USDT_BOOL __bpf_usdt_has_cookie
	__attribute__((weak));
const volatile __BPF_USDT_BOOL __bpf_usdt_has_cookie = 1;

/*
 * The context of a program is the kernel's struct pt_regs. It is read in words,
 * called slots here; the Go side knows which slot holds which register. The
 * verifier wants every access to the context at a constant offset, and until
 * 5.12 every access to the stack too. So a word is found by comparing its
 * number, in halves, and each load is in assembly: from C a compiler would make
 * a single load at a computed address, and a jump table of a switch.
 */
#define __BPF_USDT_LOAD(n)                                                     \
	asm volatile(__BPF_USDT_LOAD_WORD                                      \
		     : "=r"(word)                                              \
		     : "r"(words), "i"((n) * __BPF_USDT_WORD_SIZE)             \
		     : "memory")
#define __BPF_USDT_LOAD2(n)                                                    \
	if (slot < (n) + 1) {                                                  \
		__BPF_USDT_LOAD(n);                                            \
	} else {                                                               \
		__BPF_USDT_LOAD((n) + 1);                                      \
	}
#define __BPF_USDT_LOAD4(n)                                                    \
	if (slot < (n) + 2) {                                                  \
		__BPF_USDT_LOAD2(n)                                            \
	} else {                                                               \
		__BPF_USDT_LOAD2((n) + 2)                                      \
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

#define __BPF_USDT_WORD_SIZE 8
#ifdef __clang__
#define __BPF_USDT_LOAD_WORD "%0 = *(u64 *)(%1 + %2)"
#else /* the syntax that gcc's assembler has unless it is told otherwise */
#define __BPF_USDT_LOAD_WORD "ldxdw %0, [%1 + %2]"
#endif

/*
 * The program counter's slot, and the loads of the slots from 16 on: all that
 * hold registers which an argument can name (argspec has the names), and some
 * others. Slots below 16 are loaded on every machine.
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
/* r0 .. r31, nip, msr, orig_gpr3, ctr, lr, xer, ccr, softe */
#define __BPF_USDT_IP_SLOT 32
#define __BPF_USDT_LOAD_FROM_16                                                \
	if (slot < 32) {                                                       \
		__BPF_USDT_LOAD16(16)                                          \
	} else if (slot < 40) {                                                \
		__BPF_USDT_LOAD8(32)                                           \
	}
#elif defined(__TARGET_ARCH_loongarch) || defined(__loongarch64)
/* r0 .. r31; then a word of the kernel's own, and era */
#define __BPF_USDT_IP_SLOT 33
#elif defined(__TARGET_ARCH_arm) || defined(__arm__)
/* r0 .. r15, which is the program counter; no windows on 32-bit machines */
#define __BPF_USDT_IP_SLOT 15
#define __BPF_USDT_LOAD_FROM_16
#undef __BPF_USDT_WORD_SIZE
#undef __BPF_USDT_LOAD_WORD
#define __BPF_USDT_WORD_SIZE 4
#ifdef __clang__
#define __BPF_USDT_LOAD_WORD "%0 = *(u32 *)(%1 + %2)"
#else
#define __BPF_USDT_LOAD_WORD "ldxw %0, [%1 + %2]"
#endif
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

/* What the index adds to an address. */
static __always_inline __u64
__bpf_usdt_index(struct pt_regs *ctx, const struct __bpf_usdt_arg *arg)
{
	__u64 index = __bpf_usdt_word(ctx, arg->index);

	if (arg->flags & __BPF_USDT_INDEX_ZERO_EXTENDED)
		index = (__u32)index;
	if (arg->flags & __BPF_USDT_INDEX_SIGN_EXTENDED)
		index = (__s64)(__s32)index;
	return index << arg->scale;
}

/* Where an argument in memory is, or what the value of a sum is. */
static __always_inline __u64
__bpf_usdt_address(struct pt_regs *ctx, const struct __bpf_usdt_arg *arg)
{
	__u64 address = __bpf_usdt_word(ctx, arg->base);

	if (arg->index != __BPF_USDT_NO_SLOT) {
		if (arg->flags & __BPF_USDT_BASE_ZERO_EXTENDED)
			address = (__u32)address;
		address += __bpf_usdt_index(ctx, arg);
	}
	address += arg->value;
	if (arg->flags & __BPF_USDT_ADDRESS32)
		address = (__u32)address;
	return address;
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
	union {
		__u64 ip;
		__u32 id;
	} key; /* a union: two variables would take more stack */

	if (__bpf_usdt_has_cookie) {
		key.id = bpf_get_attach_cookie(ctx);
	} else {
		__u32 *found;

		key.ip = __bpf_usdt_word(ctx, __BPF_USDT_IP_SLOT);
		found = (__u32 *)bpf_map_lookup_elem(&__bpf_usdt_ip_to_spec_id, &key.ip);
		if (!found)
			return 0;
		key.id = *found;
	}
	/* IDs begin at 1: 0 is the cookie of a program attached without one. */
	if (!key.id)
		return 0;
	return (struct __bpf_usdt_spec *)bpf_map_lookup_elem(&__bpf_usdt_specs,
							     &key.id);
}

/* The word of the window that the argument is in; a large number for none. */
static __always_inline __u64
__bpf_usdt_window_slot(const struct __bpf_usdt_arg *arg)
{
	__u64 slot = (__u8)(arg->window - 1) / 8;

	__bpf_usdt_opaque(slot);
	return slot;
}

/*
 * Read one argument, out of the window if that was read and has it. *value is 0
 * on every error.
 *
 * The stack of a program and of the functions that it calls is 512 bytes
 * altogether. So what is read goes into *value, and there is no variable here
 * that would need a place of its own.
 */
static __always_inline long
__bpf_usdt_read(struct pt_regs *ctx, const struct __bpf_usdt_arg *arg,
		const __u64 *window, __u64 window_words, __u64 *value)
{
	__u8 kind = arg->kind;
	__u64 word, slot;

	/* Put the operand into the upper bytes of word. */
	if (kind == __BPF_USDT_REGISTER) {
		word = __bpf_usdt_word(ctx, arg->base) >> arg->shift
						       << (64 - 8 * arg->size);
	} else if (kind == __BPF_USDT_CONSTANT) {
		*value = arg->value;
		return 0;
	} else if (kind == __BPF_USDT_UNAVAILABLE || kind == __BPF_USDT_BYTES) {
		*value = 0;
		return -EOPNOTSUPP;
	} else if (slot = __bpf_usdt_window_slot(arg), slot < window_words) {
		__u8 before = arg->window - 1;

		before = 8 * (before % 8);
		word = __bpf_usdt_window_word(window, slot);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
		word <<= before;
#else
		word <<= (64 - 8 * arg->size - before) & 63;
#endif
	} else {
		__u64 address = __bpf_usdt_address(ctx, arg);
		__u64 size = arg->size;
		long err;

		*value = 0;
		if (size > sizeof(*value))
			return -EOPNOTSUPP;
		__bpf_usdt_opaque(size);
		if (size == 0)
			return -EOPNOTSUPP;
		if (kind == __BPF_USDT_SUM) {
			word = address << (64 - 8 * arg->size);
		} else {
			/* Never more than the operand: a page may end after it. */
			err = __bpf_usdt_read_user(value, size, (void *)address);
			if (err)
				return err;
			word = *value;
#if __BYTE_ORDER__ != __ORDER_BIG_ENDIAN__
			word <<= 64 - 8 * arg->size;
#endif
		}
	}

	if (arg->flags & __BPF_USDT_SIGNED)
		*value = (__s64)word >> (64 - 8 * arg->size);
	else
		*value = word >> (64 - 8 * arg->size);
	return 0;
}

/*
 * What __bpf_usdt_read_many works with: in the stack of its caller, where the
 * place is free for other variables when it is done.
 */
struct __bpf_usdt_reading {
	const struct __bpf_usdt_spec *spec;
	__u64 window_words; /* how many words of the window were read */
	/* for count arguments: count words of values, count words of the window */
	__u64 words[];
};

/*
 * Read the first count arguments; one that cannot be read is 0. Of the window
 * as many words are read, which mostly is all of it. If the window cannot be
 * read, because a part of it is in a page that is not present, its arguments
 * are read one by one.
 *
 * Returns 0, which the caller has to use. A function without a result may leave
 * a pointer to the stack in r0, and the verifier refuses to let one end so.
 */
__BPF_USDT_FUNCTION long
__bpf_usdt_read_many(struct pt_regs *ctx, struct __bpf_usdt_reading *reading,
		     __u64 count)
{
	__u64 size = reading->spec->window_size, i;
	long nothing = 0;

	reading->window_words = 0;
	if (size > 8 * count)
		size = 8 * count;
	__bpf_usdt_opaque(size);
	if (size && size <= 8 * count) {
		__u64 address =
			__bpf_usdt_word(ctx, reading->spec->window_base) +
			reading->spec->window_displacement;

		/*
		 * The verifier wants it initialized, because size is a
		 * variable. Volatile keeps the compiler from calling a function
		 * for it.
		 */
		for (i = 0; i < count; i++)
			*(volatile __u64 *)&reading->words[count + i] = 0;
		if (!__bpf_usdt_read_user(&reading->words[count], size,
					  (void *)address))
			reading->window_words = count;
	}
	for (i = 0; i < count; i++) {
		/* Have one variable, not several that are counted up. */
		__bpf_usdt_opaque(i);
		__bpf_usdt_opaque(count);
		__bpf_usdt_read(ctx, &reading->spec->args[i],
				&reading->words[count], reading->window_words,
				&reading->words[i]);
	}
	__bpf_usdt_opaque(nothing);
	return nothing;
}

/* The same, for a spec that may be NULL. */
static __always_inline void
__bpf_usdt_read_all(struct pt_regs *ctx, const struct __bpf_usdt_spec *spec,
		    struct __bpf_usdt_reading *reading, __u64 count)
{
	__u64 i;

	reading->spec = spec;
	if (spec) {
		long nothing = __bpf_usdt_read_many(ctx, reading, count);

		__bpf_usdt_opaque(nothing);
	} else {
		for (i = 0; i < count; i++)
			reading->words[i] = 0;
	}
}

#endif /* GOUSDT_USDT_SPEC_BPF_H */
