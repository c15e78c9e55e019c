// SPDX-License-Identifier: BSD-2-Clause

//! What frames.cc is for C++: calls that panics leave, and guards whose drop is
//! the end, also where a panic unwinds through them.
//!
//!     frames SCENARIO

use std::arch::asm;
use std::panic::{catch_unwind, resume_unwind};

macro_rules! probe {
    ($name:literal, $argument:literal, $id:expr) => {
        unsafe {
            asm!(
                "990: nop",
                ".pushsection .note.stapsdt, \"?\", \"note\"",
                ".balign 4",
                ".4byte 992f-991f, 994f-993f, 3",
                "991: .asciz \"stapsdt\"",
                "992: .balign 4",
                "993: .8byte 990b, 0, 0",
                ".asciz \"frames\"",
                concat!(".asciz \"", $name, "\""),
                concat!(".asciz \"", $argument, "\""),
                "994: .balign 4",
                ".popsection",
                in(reg) $id as i64,
            )
        }
    };
}

macro_rules! pass {
    ($name:literal, $id:expr) => {
        #[cfg(target_arch = "x86_64")]
        probe!($name, "8@%{0}", $id);
        #[cfg(not(target_arch = "x86_64"))]
        probe!($name, "8@{0}", $id);
    };
}

macro_rules! end {
    ($id:expr) => {
        pass!("q__done", $id);
        print!("{} ", $id);
    };
}

/// A request that recovers from what one inside it has thrown.
#[inline(never)]
fn request(id: i64, depth: i64) {
    pass!("q__start", id);
    if depth > 3 {
        resume_unwind(Box::new(depth));
    }
    let room = [id; 16];
    std::hint::black_box(&room);
    if depth == 0 {
        let _ = catch_unwind(|| request(id + 500, 1));
    } else {
        request(id + 1, depth + 1);
    }
    end!(id);
}

/// Both probes have functions of their own.
struct Guard(i64);

#[inline(never)]
fn make(id: i64) -> Guard {
    let room = [id; 64];
    std::hint::black_box(&room);
    pass!("q__start", id);
    Guard(id)
}

impl Drop for Guard {
    #[inline(never)]
    fn drop(&mut self) {
        end!(self.0);
    }
}

#[inline(never)]
fn guarded(id: i64, depth: i64) {
    let guard = make(id);
    if depth == 3 {
        resume_unwind(Box::new(depth));
    } else if depth == 1 {
        let _ = catch_unwind(|| guarded(id + 1, depth + 1));
    } else {
        guarded(id + 1, depth + 1);
    }
    std::hint::black_box(&guard);
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("panics") {
        for id in 0..5 {
            std::thread::spawn(move || request(id, 0)).join().unwrap();
        }
        for id in 5..10 {
            request(id, 0);
        }
    } else {
        for id in [10, 20, 30] {
            guarded(id, 0);
        }
    }
    println!();
}
