import java.util.HashMap;
import java.util.Map;

/** Builds strings and maps on a few threads: a small program as the JVM runs them. */
public class Strings {
    static int count(int seed) {
        Map<String, Integer> lengths = new HashMap<>();
        StringBuilder text = new StringBuilder();
        for (int number = 0; number < 60_000; number++) {
            text.append(number * seed).append(' ');
            lengths.put("word" + number % 9973, text.length());
        }
        return lengths.size() + text.length();
    }

    public static void main(String[] arguments) throws InterruptedException {
        int[] sums = new int[4];
        Thread[] threads = new Thread[4];
        for (int place = 0; place < threads.length; place++) {
            int mine = place;
            threads[place] = new Thread(() -> sums[mine] = count(mine + 1));
            threads[place].start();
        }
        int total = 0;
        for (int place = 0; place < threads.length; place++) {
            threads[place].join();
            total += sums[place];
        }
        System.out.println(total);
    }
}
