// Prometheus is a program whose ranks show their metrics to Prometheus: rank r serves them
// at /metrics on port -port + r of the loopback interface, or on free ports with -port 0.
//
//	ferry run -n 4 prometheus -port 9464 -for 10m
//
// Meanwhile the ranks pass messages around a ring and add numbers up. With -for 0 they do
// one round, and rank 0 prints what Prometheus would read.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/ferrympi/ferry/mpi"
	otelmpi "github.com/ferrympi/ferry/otel"
)

func main() {
	port := flag.Int("port", 9464, "the port of rank 0; rank r has this port plus r; 0: any that is free")
	long := flag.Duration("for", 0, "how long the ranks work; 0: one round, whose metrics rank 0 prints")
	flag.Parse()
	if err := run(*port, *long, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(port int, long time.Duration, out io.Writer) (err error) {
	ctx := context.Background()
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		return err
	}
	provider := metric.NewMeterProvider(metric.WithReader(reader))
	defer closed(&err, func() error { return provider.Shutdown(ctx) })
	telemetry, err := otelmpi.New(otelmpi.WithMeterProvider(provider))
	if err != nil {
		return err
	}
	defer closed(&err, telemetry.Close)

	session, err := mpi.OpenSession(ctx, mpi.WithHooks(telemetry))
	if err != nil {
		return err
	}
	defer closed(&err, session.Close)
	if err := telemetry.Watch(session); err != nil {
		return err
	}
	defer telemetry.Flush()
	world, err := session.Group(ctx, "mpi://WORLD")
	if err != nil {
		return err
	}
	comm, err := mpi.CommFromGroup(ctx, world, "org.example.prometheus")
	if err != nil {
		return err
	}
	defer closed(&err, comm.Close)

	if port != 0 {
		port += comm.Rank()
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer closed(&err, func() error {
		if err := server.Close(); err != nil {
			return err
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})

	for end := time.Now().Add(long); ; {
		over, err := round(ctx, comm, end)
		if err != nil {
			return err
		}
		if over {
			break
		}
	}
	if long == 0 && comm.Rank() == 0 {
		return show(out, "http://"+listener.Addr().String()+"/metrics")
	}
	return nil
}

// round passes a message around the ring. It reports whether the time is up for any rank,
// so that all end in the same round.
func round(ctx context.Context, comm *mpi.Comm, end time.Time) (bool, error) {
	right, left := (comm.Rank()+1)%comm.Size(), (comm.Rank()+comm.Size()-1)%comm.Size()
	if _, err := comm.Sendrecv(ctx, make([]byte, 1024), right, 0, make([]byte, 1024), left, 0); err != nil {
		return false, err
	}
	mine, most := []int64{0}, []int64{0}
	if time.Now().After(end) {
		mine[0] = 1
	} else {
		time.Sleep(10 * time.Millisecond) // the work of a real program
	}
	err := mpi.Allreduce(ctx, comm, mine, most, mpi.Max[int64]())
	return most[0] == 1, err
}

// show prints what Prometheus would read.
func show(out io.Writer, url string) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	_, err = io.Copy(out, resp.Body)
	return err
}

// closed is deferred: the error of a Close counts where nothing else has failed.
func closed(err *error, close func() error) {
	if e := close(); *err == nil {
		*err = e
	}
}
