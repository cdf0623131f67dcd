package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// A Handler is a job. Calls come from several goroutines at once.
type Handler interface {
	Status() Status
	// Resize makes a change, and returns when it is finished. The end of ctx withdraws it. At the end of
	// the wait, the context's error is DeadlineExceeded.
	Resize(ctx context.Context, r Resize) (Resized, error)
}

// A Server serves the socket of one job.
type Server struct {
	handler  Handler
	log      *slog.Logger
	listener net.Listener
	ctx      context.Context // Ends at Close.
	cancel   context.CancelCauseFunc
	// Has an element for each connection.
	conns chan struct{}
	wg    sync.WaitGroup
}

var (
	errClosed    = errors.New("the job is ending")
	errWithdrawn = errors.New("the user has withdrawn the request")
)

// Serve serves a job on l until Close. Malformed requests go to log, as one warning each.
func Serve(l net.Listener, h Handler, log *slog.Logger) *Server {
	s := &Server{handler: h, log: log, listener: l, conns: make(chan struct{}, maxConns)}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.wg.Go(s.accept)
	return s
}

// Close closes the listener, withdraws the changes that are not integrated, and returns when their
// clients have been answered.
func (s *Server) Close() {
	s.cancel(errClosed)
	s.listener.Close() // Fails only for a closed listener.
	s.wg.Wait()
}

// accept starts a goroutine for each connection.
func (s *Server) accept() {
	const retryDelay = 100 * time.Millisecond
	for isRetry := false; ; {
		nc, err := s.listener.Accept()
		switch {
		case err == nil:
			isRetry = false
			s.wg.Go(func() { s.serve(nc) })
			continue
		case s.ctx.Err() != nil:
			return
		case !isRetry:
			s.log.Warn("control socket: accept failed; retrying", "error", err)
			isRetry = true
		}
		select { // No descriptors are free, for example.
		case <-time.After(retryDelay):
		case <-s.ctx.Done():
		}
	}
}

// serve serves one connection, and closes it.
func (s *Server) serve(nc net.Conn) {
	defer nc.Close()
	pid, err := wire.CheckPeer(nc)
	if err == nil {
		err = s.converse(nc)
	}
	if err != nil && s.ctx.Err() == nil {
		s.log.Warn("control socket: a request was refused", "pid", pid, "error", cut(err.Error()))
	}
}

// cut limits a text that may come from a client.
func cut(text string) string {
	const most = 200
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// converse reads the request of a connection, and replies. An error is malformed input.
func (s *Server) converse(nc net.Conn) error {
	select {
	case s.conns <- struct{}{}:
		defer func() { <-s.conns }()
	default:
		send(nc, reply{Error: fmt.Sprintf("%d requests are in progress: try again later", maxConns)})
		return nil
	}
	if err := nc.SetReadDeadline(time.Now().Add(requestTimeout)); err != nil {
		return err
	}
	stop := context.AfterFunc(s.ctx, func() { nc.SetReadDeadline(time.Now()) })
	defer stop()
	r := bufio.NewReaderSize(nc, maxRequest)
	line, err := r.ReadSlice('\n')
	switch {
	case len(line) == 0 && err != nil && !isTimeout(err): // The client has closed, as `ferry ps` does after its time limit.
		return nil
	case isTimeout(err):
		return fmt.Errorf("no complete request in %v", requestTimeout)
	case errors.Is(err, bufio.ErrBufferFull):
		return fmt.Errorf("request longer than %d bytes", maxRequest)
	case err != nil:
		return fmt.Errorf("incomplete request: %w", err)
	}
	req, err := decodeRequest(line)
	switch {
	case err != nil:
		send(nc, reply{Error: err.Error()})
		return err
	case req.Resize == nil:
		st := s.handler.Status()
		send(nc, reply{Status: &st})
		return nil
	}
	return s.resize(nc, r, *req.Resize)
}

// resize makes a change, and withdraws it when the client closes its side.
func (s *Server) resize(nc net.Conn, r *bufio.Reader, req Resize) error {
	if err := nc.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	ctx, withdraw := context.WithCancelCause(s.ctx)
	defer withdraw(nil)
	var inputErr error
	var watch sync.WaitGroup
	watch.Go(func() {
		switch _, err := r.ReadByte(); {
		case err == nil:
			inputErr = errors.New("data after the request")
			withdraw(inputErr)
		case !isTimeout(err):
			withdraw(errWithdrawn)
		}
	})
	waiting, cancel := context.WithTimeout(ctx, req.Wait)
	defer cancel()
	done, err := s.handler.Resize(waiting, req)
	nc.SetReadDeadline(time.Now()) // Ends the watch.
	watch.Wait()
	if err != nil {
		send(nc, reply{Error: err.Error()})
		return inputErr
	}
	send(nc, reply{Resized: &done})
	return inputErr
}

// send sends a reply. A client that has closed or does not read gets none.
func send(nc net.Conn, r reply) {
	r.Version = Version
	line, err := encode(r)
	if err == nil && len(line) > maxReply {
		line, err = encode(reply{Version: Version, Error: fmt.Sprintf("a reply of %d bytes is over the limit of %d", len(line), maxReply)})
	}
	if err != nil || nc.SetWriteDeadline(time.Now().Add(replyTimeout)) != nil {
		return
	}
	_, _ = nc.Write(line)
}

// isTimeout reports whether a deadline of a connection has passed.
func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
