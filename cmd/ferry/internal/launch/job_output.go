package launch

import (
	"sync"

	"github.com/ferrympi/ferry/bootstrap/local/server"
)

// jobOutput is the output of a job with the notes for the user. Its methods run on the goroutine of
// the supervisor, except for report. They do not block on a reader.
type jobOutput struct {
	stdout, stderr *sink
	// One of each sink at most.
	sinkErrors *server.Queue[error]
	// First error that is not EPIPE.
	firstError error
	// Number of further errors that are not EPIPE.
	moreErrors int
	// The reader of the output has closed it (EPIPE).
	isUnread bool
	// Closed when all output is written.
	allDrained chan struct{}
	noteQueue  *notifier
	// nil while more may come.
	notesDelivered <-chan struct{}
}

func newJobOutput() jobOutput {
	return jobOutput{sinkErrors: server.NewQueue[error](), allDrained: make(chan struct{}), noteQueue: newNotifier()}
}

// open opens the sinks of Stdout and Stderr. There is one sink if both are the same file, so that lines
// of both do not mix.
func (o *jobOutput) open(j *Job) {
	o.stdout = &sink{w: j.Stdout, onError: o.report}
	o.stderr = o.stdout
	if !isSameWriter(j.Stdout, j.Stderr) {
		o.stderr = &sink{w: j.Stderr, onError: o.report}
	}
}

// report queues the failure of a sink. Any goroutine may call it.
func (o *jobOutput) report(err error) { o.sinkErrors.Add(err) }

// drain closes drained when the output of all ranks is written. All of them have ended.
func (o *jobOutput) drain(ranks []*rank) {
	go func() {
		defer close(o.allDrained)
		var all sync.WaitGroup
		for _, r := range ranks {
			all.Go(r.drain)
		}
		all.Wait()
		for _, k := range []*sink{o.stdout, o.stderr} {
			if k != nil {
				k.finish()
			}
		}
	}()
}

// closeNotes accepts no further notes, and sets notesDelivered.
func (o *jobOutput) closeNotes() {
	o.noteQueue.close()
	o.notesDelivered = o.noteQueue.allDelivered
}
