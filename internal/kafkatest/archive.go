package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// archiveOf names the file with the classes of a release as a JVM holds them in
// memory (class data sharing): a process that has it starts in little more than
// half of the processor time. A JVM reads only its own, hence the name.
func archiveOf(java, libs string) string {
	real, err := filepath.EvalSymlinks(java)
	if err != nil {
		real = java
	}
	info, err := os.Stat(real)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s-%d-%d.jsa", libs, info.Size(), info.ModTime().Unix())
}

// sharing are the JVM's flags to use the archive, if there is one. A JVM that
// finds it does not fit does without, and says nothing among a consumer's lines.
func sharing(java, libs string) []string {
	file := archiveOf(java, libs)
	if _, err := os.Stat(file); err != nil {
		return nil
	}
	return []string{"-XX:SharedArchiveFile=" + file, "-Xlog:disable", "-Xlog:all=warning:stderr"}
}

// archive makes a release's archive, once per machine and JVM like the jars: a node
// that has done some work leaves it when it ends.
func archive(ctx context.Context, version, java, libs string) error {
	file := archiveOf(java, libs)
	if _, err := os.Stat(file); err == nil || file == "" {
		return nil
	}
	unlock, err := lockFile(libs + ".lock")
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return nil // the cache is somebody else's: it goes without
	case err != nil:
		return err
	}
	defer unlock()
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	dir, err := os.MkdirTemp(filepath.Dir(libs), "archive-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	made := filepath.Join(dir, "classes.jsa")
	o, err := Options{Version: version, JVM: []string{"-XX:ArchiveClassesAtExit=" + made}}.withDefaults()
	if err != nil {
		return err
	}
	c, err := startIn(ctx, o, java, libs, dir)
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.work(ctx); err != nil {
		return fmt.Errorf("kafkatest: archive of the classes of %s: %w", version, err)
	}
	if err := c.nodes[0].stop(); err != nil {
		return err
	}
	return os.Rename(made, file)
}

// work has a cluster do what all tests have it do, so that it loads the classes.
func (c *core) work(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	const topic = "work"
	cl, err := kgo.NewClient(append(c.ClientOpts(), kgo.DefaultProduceTopic(topic), kgo.TransactionalID(topic),
		kgo.ConsumerGroup(topic), kgo.ConsumeTopics(topic))...)
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := createTopic(ctx, cl, topic, 1, 1, nil); err != nil {
		return err
	}
	if err := cl.BeginTransaction(); err != nil {
		return err
	}
	if err := cl.ProduceSync(ctx, kgo.StringRecord("work")).FirstErr(); err != nil {
		return err
	}
	if err := cl.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return err
	}
	for n := 0; n == 0; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return err
		}
		n = fetches.NumRecords()
	}
	return cl.CommitUncommittedOffsets(ctx)
}
