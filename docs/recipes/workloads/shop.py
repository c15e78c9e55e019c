# SPDX-License-Identifier: BSD-2-Clause
"""Sells fruit, until it is ended."""
import importlib
import random
import sys
import time


class Basket:
    def __init__(self):
        self.me = self  # a cycle, which only the collector frees
        self.fruit = []


def price(fruit):
    return len(fruit) * 2


def sell():
    basket = Basket()
    for fruit in ("apple", "pear", "fig"):
        basket.fruit.append((fruit, price(fruit)))


def main():
    sys.setprofile(lambda frame, event, argument: None)
    while True:
        for _ in range(random.randrange(50)):
            sell()
        sys.modules.pop("colorsys", None)
        importlib.import_module("colorsys")
        time.sleep(0.01)


main()
