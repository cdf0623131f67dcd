// Training fits a small neural network on several ranks. Each rank has a part of the samples
// and a copy of all weights. In each step, Iallreduce adds up the gradients of a layer over the
// ranks while the ranks compute those of the preceding layer. Rank 0 compares the
// weights with the result of a single rank.
//
//	ferry run -n 4 bin/training -samples 512 -steps 30
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/ferrympi/ferry/mpi"
)

func main() {
	samples := flag.Int("samples", 512, "number of samples, on all ranks together")
	width := flag.Int("width", 64, "neurons in each of the two hidden layers")
	steps := flag.Int("steps", 30, "number of training steps")
	flag.Parse()
	if err := run(context.Background(), *samples, *width, *steps); err != nil {
		fmt.Fprintln(os.Stderr, "training:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, samples, width, steps int) error {
	if samples < 1 || samples > 1e6 || width < 1 || width > 4096 || steps < 1 {
		return fmt.Errorf("-samples %d -width %d -steps %d: want 1 to 1000000, 1 to 4096, and at least 1", samples, width, steps)
	}
	session, err := mpi.OpenSession(ctx)
	if err != nil {
		return err
	}
	defer session.Close()
	world, err := session.Group(ctx, "mpi://WORLD")
	if err != nil {
		return err
	}
	comm, err := mpi.CommFromGroup(ctx, world, "org.example.training")
	if err != nil {
		return err
	}
	defer comm.Close()

	net := newNetwork(inputs, width, width, 1)
	first, end := samples*comm.Rank()/comm.Size(), samples*(comm.Rank()+1)/comm.Size()
	mine := newBatch(net, first, end)
	start := time.Now()
	for range steps {
		if err := step(ctx, comm, net, mine, samples); err != nil {
			return err
		}
	}
	elapsed := time.Since(start)

	spread, err := compare(ctx, comm, net)
	if err != nil || comm.Rank() != 0 {
		return err
	}
	all := newBatch(net, 0, samples)
	alone := newNetwork(inputs, width, width, 1)
	before := alone.loss(all)
	for range steps {
		alone.stepAlone(all)
	}
	fmt.Printf("training: %d weights, %d samples, %d ranks, %d steps in %.3f s: loss %.4f, then %.4f\n",
		net.size(), samples, comm.Size(), steps, elapsed.Seconds(), before, net.loss(all))
	return verdict(os.Stdout, comm.Size(), result{spread, net.difference(alone), before, net.loss(all)})
}

// step is one of training. It is done from the last layer to the first, and gradients
// travel as soon as they are there.
func step(ctx context.Context, comm *mpi.Comm, net network, mine *batch, samples int) error {
	delta := net.forward(mine)
	requests := make([]mpi.Request, len(net))
	for k := len(net) - 1; k >= 0; k-- {
		net[k].gradients(delta, mine.layerValues[k])
		var err error
		if requests[k], err = mpi.Iallreduce(comm, nil, net[k].gradient, mpi.Sum[float64]()); err != nil {
			return err
		}
		if k > 0 { // under which the gradients travel
			delta = net[k].backward(delta, mine.layerValues[k])
		}
	}
	for k := len(net) - 1; k >= 0; k-- {
		if _, err := requests[k].Wait(ctx); err != nil {
			return err
		}
		net[k].learn(samples)
	}
	return nil
}

// compare returns by how much the weights of any rank differ from those of rank 0: all
// members of an allreduce get the same bits.
func compare(ctx context.Context, comm *mpi.Comm, net network) (float64, error) {
	worst := make([]float64, 1)
	for _, l := range net {
		weights := append([]float64(nil), l.weights...)
		if err := mpi.Bcast(ctx, comm, weights, 0); err != nil {
			return 0, err
		}
		worst[0] = max(worst[0], difference(weights, l.weights))
	}
	err := mpi.Allreduce(ctx, comm, nil, worst, mpi.Max[float64]())
	return worst[0], err
}

// result is the result of a training.
type result struct {
	weightSpread            float64 // Largest difference of a weight between ranks.
	soloDifference          float64 // Largest difference to training without the other ranks.
	errorBefore, errorAfter float64 // Mean square errors.
}

// tolerance allows for sums of gradients in another order; weights are of the order of 1.
const tolerance = 1e-9

// verdict prints that the weights are right, or returns an error.
func verdict(w io.Writer, ranks int, r result) error {
	switch {
	case r.weightSpread != 0 || math.IsNaN(r.weightSpread):
		return fmt.Errorf("check failed: a weight differs by %.1e between ranks", r.weightSpread)
	case !(r.soloDifference <= tolerance):
		return fmt.Errorf("check failed: a weight differs by %.1e from that of one rank alone", r.soloDifference)
	case !(r.errorAfter < r.errorBefore):
		return fmt.Errorf("check failed: the loss was %g and is %g: the loss did not fall", r.errorBefore, r.errorAfter)
	}
	_, err := fmt.Fprintf(w, "ok: training on %d ranks agrees with one rank alone (largest difference %.1e)\n", ranks, r.soloDifference)
	return err
}
