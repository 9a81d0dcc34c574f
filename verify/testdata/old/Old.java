import java.nio.ByteBuffer;
import java.nio.file.*;
import java.util.*;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.record.Record;

/**
 * Writes message sets of formats 0 and 1 with the classes of the Java client 3.9, and
 * beside each what these classes read from it: offset, timestamp, key and value in
 * hexadecimal digits, "null" for null. The compacted ones went through the filter of
 * the log cleaner.
 *
 *   java -cp 'libs/*' Old.java folder
 */
public class Old {
    static byte[] bytes(String s) { return s == null ? null : s.getBytes(); }

    static String hex(ByteBuffer b) {
        if (b == null) return "null";
        StringBuilder s = new StringBuilder("'");
        while (b.hasRemaining()) s.append(String.format("%02x", b.get()));
        return s.toString();
    }

    public static void main(String[] args) throws Exception {
        for (byte magic = 0; magic <= 1; magic++)
            for (CompressionType type : new CompressionType[]{CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4})
                for (TimestampType times : new TimestampType[]{TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME}) {
                    if (magic == 0 && times == TimestampType.LOG_APPEND_TIME) continue;
                    MemoryRecords records = write(magic, type, times);
                    String name = "v" + magic + "-" + type.name + (times == TimestampType.LOG_APPEND_TIME ? "-stamped" : "");
                    save(args[0], name, records);
                    save(args[0], name + "-compacted", compact(records));
                }
    }

    static MemoryRecords write(byte magic, CompressionType type, TimestampType times) {
        ByteBuffer all = ByteBuffer.allocate(1 << 20);
        for (int set = 0; set < 2; set++) {
            ByteBuffer one = ByteBuffer.allocate(1 << 18);
            long base = 1000 + 40L * set;
            MemoryRecordsBuilder b = MemoryRecords.builder(one, magic, Compression.of(type).build(), times, base, 1700000009000L + set);
            for (int i = 0; i < 20; i++) {
                if (i == 7 || i == 8) continue; // a hole
                b.appendWithOffset(base + i, magic == 0 ? RecordBatch.NO_TIMESTAMP : 1700000000000L + i * 1000,
                    i % 5 == 3 ? null : bytes("key-" + i), i % 7 == 2 ? null : i % 7 == 4 ? new byte[0] : bytes("value " + i + " value value value"));
            }
            MemoryRecords r = b.build();
            all.put(r.buffer().duplicate());
        }
        all.flip();
        return MemoryRecords.readableRecords(all);
    }

    static MemoryRecords compact(MemoryRecords records) {
        ByteBuffer out = ByteBuffer.allocate(1 << 20);
        MemoryRecords.FilterResult result = records.filterTo(new TopicPartition("t", 0), new MemoryRecords.RecordFilter(0, 0) {
            protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
                return new BatchRetentionResult(MemoryRecords.RecordFilter.BatchRetention.DELETE_EMPTY, false);
            }
            protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
                long i = record.offset() % 40;
                return i != 0 && i != 5 && i < 18; // head, middle, tail
            }
        }, out, Integer.MAX_VALUE, BufferSupplier.NO_CACHING);
        ByteBuffer b = result.outputBuffer();
        b.flip();
        return MemoryRecords.readableRecords(b);
    }

    static void save(String folder, String name, MemoryRecords records) throws Exception {
        ByteBuffer b = records.buffer().duplicate();
        byte[] raw = new byte[b.remaining()];
        b.get(raw);
        Files.write(Paths.get(folder, name + ".log"), raw);
        List<String> lines = new ArrayList<>();
        for (Record r : records.records())
            lines.add(r.offset() + " " + r.timestamp() + " " + hex(r.key()) + " " + hex(r.value()));
        Files.write(Paths.get(folder, name + ".txt"), lines);
    }
}
