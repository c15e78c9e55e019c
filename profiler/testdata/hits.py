# SPDX-License-Identifier: BSD-2-Clause
# Passes python:gc__start as often as each line says, in each of four threads.
# At the end it prints how often generation 0 was collected. Another program that
# wants the same lines can be given as arguments.
import gc
import subprocess
import sys
import threading


def deep_collect(generation):
    gc.collect(generation)


def handle_request(generation):
    deep_collect(generation)


def main_loop(hits):
    for _ in range(hits):
        handle_request(0)


gc.disable()
children = []
if sys.argv[1:]:
    pipe = subprocess.PIPE
    children.append(subprocess.Popen(sys.argv[1:], stdin=pipe, stdout=pipe, text=True))
for line in sys.stdin:
    for child in children:
        print(line, end="", file=child.stdin, flush=True)
    threads = [threading.Thread(target=main_loop, args=(int(line),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for child in children:
        child.stdout.readline()
    print("done", flush=True)
print(gc.get_stats()[0]["collections"])
