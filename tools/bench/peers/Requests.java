// SPDX-License-Identifier: BSD-2-Clause
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Handles requests in two threads, and prints what one takes: average and p99, in nanoseconds. */
public class Requests {
	private static final Map<Integer, byte[]> sessions = new LinkedHashMap<>() {
		@Override
		protected boolean removeEldestEntry(Map.Entry<Integer, byte[]> eldest) {
			return size() > 1000;
		}
	};

	static int line(int request, int number) {
		return request * 31 + number;
	}

	static int request(int number) {
		List<byte[]> lines = new ArrayList<>();
		int sum = 0;
		for (int i = 0; i < 8; i++) {
			byte[] text = new byte[1024];
			Arrays.fill(text, (byte) line(number, i));
			lines.add(text);
		}
		for (byte[] text : lines) {
			for (byte b : text) {
				sum += b;
			}
		}
		synchronized (sessions) {
			sessions.put(number, lines.get(0));
		}
		return sum;
	}

	public static void main(String[] arguments) throws InterruptedException {
		final int threads = 2, warmUp = 10_000, requests = Integer.parseInt(arguments[0]);
		long[] times = new long[threads * requests];
		int[] sums = new int[threads];
		Thread[] all = new Thread[threads];
		for (int t = 0; t < threads; t++) {
			final int first = t * requests, thread = t;
			all[t] = new Thread(() -> {
				for (int i = 0; i < warmUp; i++) {
					sums[thread] += request(i);
				}
				for (int i = first; i < first + requests; i++) {
					long began = System.nanoTime();
					sums[thread] += request(i);
					times[i] = System.nanoTime() - began;
				}
			});
			all[t].start();
		}
		for (Thread thread : all) {
			thread.join();
		}
		long total = 0;
		for (long time : times) {
			total += time;
		}
		Arrays.sort(times);
		System.out.println(total / times.length + " " + times[times.length * 99 / 100]);
	}
}
