# SPDX-License-Identifier: BSD-2-Clause
# Passes python:gc__start as often as each line says, in each of four threads.
import gc
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
for line in sys.stdin:
    threads = [threading.Thread(target=main_loop, args=(int(line),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("done", flush=True)
