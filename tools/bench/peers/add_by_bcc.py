# SPDX-License-Identifier: BSD-2-Clause
"""bcc, adding up the arguments of probes.

    add_by_bcc.py PATH PROBE:COUNT...

attaches to each probe a program that adds up its arguments and does nothing with
the sum, prints "ready", and ends when its input does.
"""
import sys

from bcc import BPF, USDT

HEAD = "BPF_ARRAY(found, u64, 1);\n"
PROGRAM = """
int on_%(probe)s(struct pt_regs *ctx)
{
    u64 sum = 0, value = 0;
%(reads)s
    if (sum == 0x7eadbeef)
        found.increment(0);
    return 0;
}
"""
READ = "    bpf_usdt_readarg(%d, ctx, &value); sum += value;"


def main(path, probes):
    usdt = USDT(path=path)
    text = HEAD
    for probe, count in probes:
        reads = "\n".join(READ % (i + 1) for i in range(count))
        text += PROGRAM % {"probe": probe, "reads": reads}
        usdt.enable_probe(probe=probe, fn_name="on_" + probe)
    attached = BPF(text=text, usdt_contexts=[usdt])
    print("ready", flush=True)
    sys.stdin.read()
    attached.cleanup()


if __name__ == "__main__":
    words = [word.rsplit(":", 1) for word in sys.argv[2:]]
    main(sys.argv[1], [(probe, int(count)) for probe, count in words])
