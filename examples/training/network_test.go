package main

import (
	"math"
	"strings"
	"testing"
)

// A gradient with the same error on all ranks passes the comparison of ranks.
func TestGradients_EqualNumericOnes(t *testing.T) {
	net := newNetwork(inputs, 5, 4, 1)
	all := newBatch(net, 0, 7)
	net.stepAlone(all) // leaves gradients, at weights that it changes
	for _, l := range net {
		for i, g := range l.gradient {
			l.weights[i] += rate * g / 7
		}
	}
	const h = 1e-6
	for k, l := range net {
		for i, g := range l.gradient {
			was := l.weights[i]
			l.weights[i] = was + h
			up := net.loss(all)
			l.weights[i] = was - h
			down := net.loss(all)
			l.weights[i] = was
			if want := (up - down) / (2 * h) * 7 / 2; math.Abs(g-want) > 1e-7 {
				t.Fatalf("layer %d, weight %d: gradient %g, want %g", k, i, g, want)
			}
		}
	}
}

func TestVerdict_OnlyRightWeights_AreOK(t *testing.T) {
	nan := math.NaN()
	for r, right := range map[result]bool{
		{0, 0, 2, 1}:             true,
		{0, tolerance, 2, 1}:     true,
		{1e-300, 0, 2, 1}:        false,
		{0, 2 * tolerance, 2, 1}: false,
		{0, 0, 2, 2}:             false,
		{0, nan, 2, 1}:           false,
		{nan, 0, 2, 1}:           false,
		{0, 0, 2, nan}:           false,
	} {
		var out strings.Builder
		if err := verdict(&out, 3, r); (err == nil) != right || strings.HasPrefix(out.String(), "ok: ") != right {
			t.Errorf("%+v: %v, %q", r, err, out.String())
		}
	}
}

func TestCheck_MissingPart_IsNoticed(t *testing.T) {
	net, other := newNetwork(inputs, 6, 6, 1), newNetwork(inputs, 6, 6, 1)
	net.stepAlone(newBatch(net, 0, 40))
	other.stepAlone(newBatch(other, 0, 39))
	if d := net.difference(other); d <= tolerance {
		t.Errorf("the difference is %g", d)
	}
}
