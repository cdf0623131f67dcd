package selector

const (
	// MessagesPerProbe is the smallest average number of messages per probe after the warm-up.
	MessagesPerProbe = 64
	// ProbeTimeShare bounds the share of the total time that probes consume.
	ProbeTimeShare = 0.02

	// earnedTime is the probe time that each message by the best protocol adds to the budget, in
	// messages of that protocol. The margin below ProbeTimeShare pays for the saved budget.
	earnedTime = 0.95 * ProbeTimeShare

	// maxProbeBudget is the number of probes that the budget accumulates. Of these, probeReserve
	// are kept for changes of the costs, which take a short and a long probe of each protocol.
	maxProbeBudget, probeReserve = 54, 50
	// maxTimeBudget is the probe time that the budget accumulates, and timeReserve the part of it
	// that is kept for changes. Both are in messages of the best protocol.
	maxTimeBudget, timeReserve = 40, 28
)

// The warm-up.
const (
	// warmupSamples is the number of samples of each promising protocol.
	warmupSamples = 3
	// warmupCutoff is the ratio to the lowest cost that excludes a protocol from further samples.
	warmupCutoff = 1.5
	// closeFactor selects protocols for a sustained trial, and after a change for a long probe, by
	// their ratio to the lowest cost.
	closeFactor = 1.5
	// sustainedMessages is the length of a sustained trial. Its last samples count, since a
	// message that follows another protocol finds other data in the caches.
	sustainedMessages = 8
	// hopelessFactor excludes a protocol from the warm-up that exceeds the lowest cost by this
	// factor in a neighboring size class.
	hopelessFactor = 2
	// maxUnconfirmedRatio bounds the assumed cost of a protocol with at most one sample, in relation to the best.
	maxUnconfirmedRatio = 3
)

// Estimates.
const (
	// switchFactor is the ratio to the cost of the best protocol below which another one replaces it.
	switchFactor = 0.97
	// costHorizon is the number of samples in the moving average of a cost.
	costHorizon = 32
	// recentHorizon is the number of samples in the moving average that detects a change.
	recentHorizon = 8
	// spikeLimit bounds the effect of one sample, as a ratio to the cost.
	spikeLimit = 2
	// maxGBs is faster than any copy. The receiver found such a message complete together with another one.
	maxGBs = 200
)

// Changes of the costs.
const (
	// changeFactor is the ratio of the recent cost to the cost that counts as a change.
	changeFactor = 1.25
	// probedChangeFactor is changeFactor for a protocol that only probes measure.
	probedChangeFactor = 1.6
	// promisingFactor bounds the ratio to the lowest cost of a good first sample that calls for
	// another probe.
	promisingFactor = 1.3
	// settleMessages and settleGroups are the messages, or groups of them, until the former best
	// protocol gets a second trial. While the scheduler moves processes, two of them may share one
	// processor, and protocols that need both sides take ten times as long.
	settleMessages, settleGroups = 32, 4
	// longProbeWarmup is the number of messages at the start of a long probe that are not measured.
	longProbeWarmup = 4
)

// Penalties of protocols that cost more in use than in probes.
const (
	// penaltyDecay is the number of probes over which a penalty decays. It doubles with each
	// raise, up to maxPenaltyRaises.
	penaltyDecay, maxPenaltyRaises = 4, 5
	// maxPenalty bounds a penalty.
	maxPenalty = 8
)

// Windows.
const (
	// runMessages is the number of messages of a window in one sample of the protocol in use. A
	// single message shows little, since messages in flight together complete together, and the
	// first ones are slow while the sender still starts the others.
	runMessages = 64
	// outliers is the number of messages of a run that are assumed to be slow for other reasons:
	// the start of a window, and an interruption.
	outliers = 2
	// windowStartSpread bounds the change of the cost of a window's start from one run to the next.
	windowStartSpread = 1.3
	// recentRuns is recentHorizon in runs, and runSpikeLimit is spikeLimit. One slow run alone is
	// no change, since (runSpikeLimit-1)/recentRuns is less than changeFactor-1.
	recentRuns, runSpikeLimit = 3, 1.6
)
