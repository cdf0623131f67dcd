package server

import "github.com/ferrympi/ferry/bootstrap/internal/sets"

// Progress is the progress of an unfinished change.
type Progress = sets.Progress

// Status is the state of a job.
type Status struct {
	// Number of processes that have neither ended nor left, with those of changes in progress.
	Ranks int
	// Largest number of them.
	Limit int
	// Unfinished ones, the oldest first.
	Changes []Progress
}

// Status returns the state of the job.
func (s *Server) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Status{Ranks: s.sets.Present(), Limit: s.sets.Most(), Changes: s.sets.Progress()}
}

// PsetSize returns the number of members of a process set that is not built in, or 0.
func (s *Server) PsetSize(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sets.Size(name)
}
