// SPDX-License-Identifier: BSD-2-Clause

//! Sells fruit, until it is ended.
use std::arch::asm;

/// A probe with two arguments of eight bytes: a nop, and a note that says where
/// it is and where the arguments are.
#[cfg(target_arch = "x86_64")]
macro_rules! probe2 {
    ($provider:literal, $name:literal, $first:expr, $second:expr) => {
        unsafe {
            asm!(
                "990: nop",
                ".pushsection .note.stapsdt, \"?\", \"note\"",
                ".balign 4",
                ".4byte 992f-991f, 994f-993f, 3",
                "991: .asciz \"stapsdt\"",
                "992: .balign 4",
                "993: .8byte 990b, _.stapsdt.base, 0",
                concat!(".asciz \"", $provider, "\""),
                concat!(".asciz \"", $name, "\""),
                ".asciz \"8@{0} 8@{1}\"",
                "994: .balign 4",
                ".popsection",
                ".ifndef _.stapsdt.base",
                ".pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat",
                ".weak _.stapsdt.base",
                ".hidden _.stapsdt.base",
                "_.stapsdt.base: .space 1",
                ".size _.stapsdt.base, 1",
                ".popsection",
                ".endif",
                in(reg) $first as u64,
                in(reg) $second as u64,
                options(att_syntax, readonly, nostack, preserves_flags),
            )
        }
    };
}

fn main() {
    for i in 0u64.. {
        probe2!("shop", "sold", i % 7, i * 2);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
