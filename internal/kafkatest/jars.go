package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// errUnavailable marks what is missing on the machine (as opposed to broken):
// the test is skipped.
var errUnavailable = errors.New("not available here")

// java returns the path of the Java launcher.
func java() (string, error) {
	path, err := exec.LookPath("java")
	if err != nil {
		return "", fmt.Errorf("%w: java not found: %w", errUnavailable, err)
	}
	return path, nil
}

// jars returns the folder with all jars of a release, fetching them on first
// use. Test binaries of several packages run at once, so the fetch is under a
// file lock and a folder appears only whole, by rename.
func jars(ctx context.Context, version string) (string, error) {
	r, ok := releases[version]
	if !ok {
		return "", fmt.Errorf("kafkatest: unknown Kafka version %q, known: %v", version, Versions())
	}
	root, err := cacheRoot()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, version)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	unlock, err := lockFile(filepath.Join(root, version+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	return dir, fetchJars(ctx, r, root, dir)
}

func fetchJars(ctx context.Context, r release, root, dir string) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return fmt.Errorf("%w: mvn not found: %w", errUnavailable, err)
	}
	tmp, err := os.MkdirTemp(root, "fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	pom := filepath.Join(tmp, "pom.xml")
	if err := os.WriteFile(pom, []byte(r.pom()), 0o644); err != nil {
		return err
	}
	libs := filepath.Join(tmp, "libs")
	cmd := exec.Command(mvn, "-q", "-B", "-f", pom, "dependency:copy-dependencies",
		"-DincludeScope=runtime", "-DoutputDirectory="+libs)
	if out, err := output(ctx, cmd); err != nil {
		return fmt.Errorf("kafkatest: fetching jars: %w\n%s", err, out)
	}
	return os.Rename(libs, dir)
}

// cacheRoot is KAFKATEST_CACHE or the user's cache folder.
func cacheRoot() (string, error) {
	root := os.Getenv("KAFKATEST_CACHE")
	if root == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("kafkatest: no cache folder, set KAFKATEST_CACHE: %w", err)
		}
		root = filepath.Join(base, "clustermirror-kafkatest")
	}
	return root, os.MkdirAll(root, 0o755)
}

// lockFile takes an exclusive lock, waiting for other processes to give it up.
// The file stays: removing it would let two processes lock different inodes.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("kafkatest: locking %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}
