package shm

import (
	"fmt"
	"os"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/shmem"
)

// prefix begins the file names of this user's segments. The user is part of it
// so that looking for stale ones opens no stranger's files.
func prefix() string { return fmt.Sprintf("ferry-%d-", os.Geteuid()) }

// jobPrefix begins the file names of the segments of one job.
func jobPrefix(namespace string) string {
	return fmt.Sprintf("%s%x-", prefix(), framework.NamespaceHash(namespace)&0xffffffff)
}

// RemoveJob removes the segments that dead processes of the job of that
// namespace have left in dir, and returns their paths. It is for the job's
// launcher, at the job's end: what it leaves (the segments of those who are
// alive) or misses goes when the next job of this user starts.
func RemoveJob(dir, namespace string) (removed []string, err error) {
	return shmem.RemoveStale(dir, jobPrefix(namespace))
}
