<?php
// SPDX-License-Identifier: BSD-2-Clause

// Sells fruit, until it is ended.
class Shop
{
    public function price(string $fruit): int
    {
        if ($fruit === 'stone') {
            throw new InvalidArgumentException($fruit);
        }
        return strlen($fruit) * 2;
    }

    public function sell(): void
    {
        try {
            foreach (['apple', 'pear', 'fig', 'stone'] as $fruit) {
                $this->price($fruit);
            }
        } catch (InvalidArgumentException) {
        }
    }
}

$shop = new Shop();
while (true) {
    for ($i = 0; $i < 20; $i++) {
        $shop->sell();
    }
    usleep(10000);
}
