// SPDX-License-Identifier: BSD-2-Clause
// Passes hotspot:thread__sleep__begin as often as each line says, in each of
// four threads.
import java.io.BufferedReader;
import java.io.InputStreamReader;

public class Hits {
    static void pause() throws InterruptedException {
        Thread.sleep(1);
    }

    static void handleOrder() throws InterruptedException {
        pause();
    }

    static void mainLoop(int hits) {
        try {
            for (int i = 0; i < hits; i++) {
                handleOrder();
            }
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            int hits = Integer.parseInt(line);
            Thread[] threads = new Thread[4];
            for (int i = 0; i < threads.length; i++) {
                threads[i] = new Thread(() -> mainLoop(hits));
                threads[i].start();
            }
            for (Thread thread : threads) {
                thread.join();
            }
            System.out.println("done");
        }
    }
}
