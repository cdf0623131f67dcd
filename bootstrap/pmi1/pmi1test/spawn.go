package pmi1test

import (
	"bufio"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
)

// A Command is the command line of a spawned job.
type Command struct {
	Program string
	Args    []string
	Dir     string
}

// nameTable is the name service of a job, which its spawned jobs share.
type nameTable struct {
	sync.Mutex
	ports map[string]string
}

// Limits of Hydra's buffers for a request, in bytes and lines.
const (
	maxRequestBytes = 64 << 10
	maxRequestLines = 1000
)

// readRequest reads a line, or all lines of a spawn, without the last end of a line.
func readRequest(r *bufio.Reader) (string, error) {
	text, err := r.ReadString('\n')
	if !strings.HasPrefix(text, "mcmd=") {
		return strings.TrimSuffix(text, "\n"), err
	}
	for err == nil && !strings.HasSuffix(text, "endcmd\n") {
		var line string
		line, err = r.ReadString('\n')
		text += line
	}
	return strings.TrimSuffix(text, "\n"), err
}

// parseRequest returns the fields of a request, and its command as cmd.
func parseRequest(text string) map[string]string {
	fields := map[string]string{}
	words := strings.Fields(text)
	if strings.HasPrefix(text, "mcmd=") {
		words = strings.Split(text, "\n")
	}
	for _, word := range words {
		k, v, _ := strings.Cut(word, "=")
		fields[strings.Replace(k, "mcmd", "cmd", 1)] = v
	}
	return fields
}

// isSpawnAccepted reports whether the server can read a spawn. Hydra ends the job otherwise.
func (s *Server) isSpawnAccepted(text string) bool {
	lines := strings.Split(text, "\n")
	if len(text) >= maxRequestBytes || len(lines) >= maxRequestLines {
		return false
	}
	return s.options.Style == Hydra402 || !slices.ContainsFunc(lines, func(line string) bool { return strings.HasSuffix(line, "=") })
}

// startJob starts the server of a spawned job. Its key space has the values of the request.
func (s *Server) startJob(f map[string]string) error {
	if s.isClosed {
		return net.ErrClosed
	}
	o := s.options
	o.Size, o.KVSName = readNumber(f["nprocs"]), fmt.Sprintf("%s_%d", s.options.KVSName, len(s.spawned)+1)
	job, err := start(o, s.names)
	if err != nil {
		return err
	}
	job.command.Program = f["execname"]
	for i := range readNumber(f["argcnt"]) {
		job.command.Args = append(job.command.Args, f[fmt.Sprint("arg", i+1)])
	}
	for i := range readNumber(f["info_num"]) {
		if f[fmt.Sprint("info_key_", i)] == "wdir" {
			job.command.Dir = f[fmt.Sprint("info_val_", i)]
		}
	}
	for i := range readNumber(f["preput_num"]) {
		job.values[f[fmt.Sprint("preput_key_", i)]] = f[fmt.Sprint("preput_val_", i)]
	}
	s.spawned = append(s.spawned, job)
	if s.options.OnSpawn != nil {
		s.wg.Go(func() { s.options.OnSpawn(job) })
	}
	return nil
}

// Spawned returns the servers of the jobs that this job has spawned, in order. Close closes them.
func (s *Server) Spawned() (jobs []*Server) {
	s.locked(func() { jobs = slices.Clone(s.spawned) })
	return jobs
}

// Command returns the command line of a spawned job.
func (s *Server) Command() Command { return s.command }

// Values returns the key space.
func (s *Server) Values() (values map[string]string) {
	s.locked(func() { values = maps.Clone(s.values) })
	return values
}

// SetValue changes the key space.
func (s *Server) SetValue(key, value string) { s.locked(func() { s.values[key] = value }) }

// Size returns the number of the job's processes.
func (s *Server) Size() int { return s.options.Size }
