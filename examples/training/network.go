package main

import "math"

// inputs is the number of values that a sample has.
const inputs = 8

// rate is how far weights go against their mean gradient in a step.
const rate = 0.05

// layer has outputs that are tanh of weighted sums of its inputs. Weights and their
// gradients have a row per output, with that of the constant 1 at its end.
type layer struct {
	inputCount, outputCount int
	weights, gradient       []float64
}

// network is a list of layers; each takes the outputs of the preceding one.
type network []*layer

// newNetwork gives weights that look random and are the same on every rank.
func newNetwork(widths ...int) (net network) {
	for k, out := range widths[1:] {
		in := widths[k]
		l := &layer{in, out, make([]float64, out*(in+1)), make([]float64, out*(in+1))}
		for i := range l.weights {
			l.weights[i] = 2 * noise(k+1, i) / math.Sqrt(float64(in))
		}
		net = append(net, l)
	}
	return net
}

// noise returns a number between -0.5 and 0.5 that depends on a and b only.
func noise(a, b int) float64 {
	h := uint64(a)<<40 + uint64(b) + 1
	h *= 0x9e3779b97f4a7c15
	h ^= h >> 29
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 32
	return float64(h>>11)/(1<<53) - 0.5
}

// batch is some of the samples: the inputs of each layer, sample by sample, the outputs of the
// network, and the expected outputs.
type batch struct {
	sampleCount   int
	layerValues   [][]float64
	wantedOutputs []float64
}

func newBatch(net network, first, end int) *batch {
	b := &batch{sampleCount: end - first, wantedOutputs: make([]float64, end-first)}
	b.layerValues = append(b.layerValues, make([]float64, b.sampleCount*net[0].inputCount))
	for _, l := range net {
		b.layerValues = append(b.layerValues, make([]float64, b.sampleCount*l.outputCount))
	}
	for i := range b.sampleCount {
		x := b.layerValues[0][i*net[0].inputCount : (i+1)*net[0].inputCount]
		for j := range x {
			x[j] = 2 * noise(first+i, 1000+j)
		}
		b.wantedOutputs[i] = math.Sin(3*x[0]) * x[len(x)-1]
	}
	return b
}

// forward computes the outputs of all layers, and returns the gradient of half the square error
// with respect to the last weighted sums.
func (net network) forward(b *batch) (delta []float64) {
	for k, l := range net {
		for i := range b.sampleCount {
			x, y := b.layerValues[k][i*l.inputCount:(i+1)*l.inputCount], b.layerValues[k+1][i*l.outputCount:(i+1)*l.outputCount]
			for o := range y {
				row := l.weights[o*(l.inputCount+1) : (o+1)*(l.inputCount+1)]
				sum := row[l.inputCount]
				for j, v := range x {
					sum += row[j] * v
				}
				y[o] = math.Tanh(sum)
			}
		}
	}
	delta = make([]float64, b.sampleCount)
	for i, y := range b.layerValues[len(net)] {
		delta[i] = (y - b.wantedOutputs[i]) * (1 - y*y)
	}
	return delta
}

// gradients computes the gradients of the weights, summed over the samples. x has the inputs of the layer, and
// delta the gradients of its weighted sums.
func (l *layer) gradients(delta, x []float64) {
	clear(l.gradient)
	for i := range len(delta) / l.outputCount {
		for o, d := range delta[i*l.outputCount : (i+1)*l.outputCount] {
			row := l.gradient[o*(l.inputCount+1) : (o+1)*(l.inputCount+1)]
			for j, v := range x[i*l.inputCount : (i+1)*l.inputCount] {
				row[j] += d * v
			}
			row[l.inputCount] += d
		}
	}
}

// backward returns the gradients of the weighted sums of the preceding layer. x has its
// outputs.
func (l *layer) backward(delta, x []float64) []float64 {
	back := make([]float64, len(x))
	for i := range len(delta) / l.outputCount {
		to := back[i*l.inputCount : (i+1)*l.inputCount]
		for o, d := range delta[i*l.outputCount : (i+1)*l.outputCount] {
			row := l.weights[o*(l.inputCount+1) : (o+1)*(l.inputCount+1)]
			for j := range to {
				to[j] += d * row[j]
			}
		}
		for j, v := range x[i*l.inputCount : (i+1)*l.inputCount] {
			to[j] *= 1 - v*v
		}
	}
	return back
}

// learn moves the weights against the gradients of the given number of samples.
func (l *layer) learn(samples int) {
	for i, g := range l.gradient {
		l.weights[i] -= rate * g / float64(samples)
	}
}

// stepAlone is step without other ranks.
func (net network) stepAlone(all *batch) {
	delta := net.forward(all)
	for k := len(net) - 1; k >= 0; k-- {
		net[k].gradients(delta, all.layerValues[k])
		if k > 0 {
			delta = net[k].backward(delta, all.layerValues[k])
		}
	}
	for _, l := range net {
		l.learn(all.sampleCount)
	}
}

// loss is the mean square error.
func (net network) loss(b *batch) (sum float64) {
	net.forward(b)
	for i, y := range b.layerValues[len(net)] {
		sum += (y - b.wantedOutputs[i]) * (y - b.wantedOutputs[i])
	}
	return sum / float64(b.sampleCount)
}

func (net network) size() (n int) {
	for _, l := range net {
		n += len(l.weights)
	}
	return n
}

// difference is the largest one of a weight.
func (net network) difference(other network) (worst float64) {
	for k, l := range net {
		worst = max(worst, difference(l.weights, other[k].weights))
	}
	return worst
}

func difference(a, b []float64) (worst float64) {
	for i := range a {
		worst = max(worst, math.Abs(a[i]-b[i])) // NaN stays
	}
	return worst
}
