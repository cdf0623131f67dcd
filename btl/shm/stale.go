package shm

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/ferrympi/ferry/btl/segment"
	"github.com/ferrympi/ferry/framework"
)

// prefix begins the file names of this user's segments. The user is part of it
// so that looking for stale ones opens no stranger's files.
func prefix() string { return fmt.Sprintf("%s%d-", usualName, os.Geteuid()) }

// The beginnings of all names: of segments in the usual directory, and of those
// in the fallback directory.
const (
	usualName    = "ferry-"
	fallbackName = "ferryf-"
)

// removeStale removes what dead processes left of the segments whose names begin
// with prefix, in both directories.
func removeStale(space segment.Space, dir, fallback, prefix string) (removed []string, err error) {
	removed, err = space.RemoveStale(dir, prefix)
	if fallback != "" {
		more, second := space.RemoveStale(fallback, fallbackName+strings.TrimPrefix(prefix, usualName))
		removed, err = append(removed, more...), errors.Join(err, second)
	}
	return removed, err
}

// jobPrefix begins the file names of the segments of one job.
func jobPrefix(namespace string) string {
	return fmt.Sprintf("%s%x-", prefix(), framework.NamespaceHash(namespace)&0xffffffff)
}

// RemoveJob removes the segments that dead processes of the job of that
// namespace have left in dir and fallback (btl.shm.dir and btl.shm.fallback_dir),
// and returns their paths. It is for the job's
// launcher, at the job's end: what it leaves (the segments of those who are
// alive) or misses goes when the next job of this user starts.
func RemoveJob(dir, fallback, namespace string) (removed []string, err error) {
	return removeStale(segment.Files{}, dir, fallback, jobPrefix(namespace))
}

// RemoveDead is RemoveJob for all jobs of this user.
func RemoveDead(dir, fallback string) (removed []string, err error) {
	return removeStale(segment.Files{}, dir, fallback, prefix())
}
