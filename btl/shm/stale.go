package shm

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/ferrympi/ferry/btl/segment"
	"github.com/ferrympi/ferry/framework"
)

// prefix begins the file names of this user's segments. It contains the user id, so that the search
// for stale segments never opens files of other users.
func prefix() string { return fmt.Sprintf("%s%d-", usualName, os.Geteuid()) }

// usualName and fallbackName begin the names of all segments in the usual and in the fallback
// directory.
const (
	usualName    = "ferry-"
	fallbackName = "ferryf-"
)

// removeStale removes the segments of dead processes whose names begin with prefix from both
// directories.
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

// RemoveJobSegments removes the segments that dead processes of the job with that namespace have left in
// dir and fallback (btl.shm.dir and btl.shm.fallback_dir), and returns their paths. The launcher
// calls it at the end of the job. Segments of live processes stay. If their owners die later, the
// next job of this user removes them.
func RemoveJobSegments(dir, fallback, namespace string) (removed []string, err error) {
	return removeStale(segment.Files{}, dir, fallback, jobPrefix(namespace))
}

// RemoveDeadSegments is RemoveJobSegments for all jobs of this user.
func RemoveDeadSegments(dir, fallback string) (removed []string, err error) {
	return removeStale(segment.Files{}, dir, fallback, prefix())
}
