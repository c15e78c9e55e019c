// SPDX-License-Identifier: BSD-2-Clause
import java.util.ArrayList;
import java.util.List;

/** Sells fruit in two threads, until it is ended. */
public class Shop {
	private static final Object till = new Object();
	private static long sold;

	static long price(String fruit) {
		return fruit.length() * 2L;
	}

	static void sell(List<byte[]> bags) throws InterruptedException {
		for (String fruit : new String[] {"apple", "pear", "fig"}) {
			synchronized (till) {
				sold += price(fruit);
			}
			bags.add(new byte[10_000]);
		}
		Thread.sleep(1);
	}

	public static void main(String[] arguments) {
		for (int i = 0; i < 2; i++) {
			new Thread(() -> {
				try {
					List<byte[]> bags = new ArrayList<>();
					while (true) {
						sell(bags);
						if (bags.size() > 300) {
							bags.clear();
						}
					}
				} catch (InterruptedException e) {
					Thread.currentThread().interrupt();
				}
			}, "seller-" + i).start();
		}
	}
}
