package progress

// A Task is work for a rank that needs another lock. It may be that of the process's engine (a send through the PML below, the transfer of a matched RTS),
// or that of another rank (the completion of its send, the delivery of a message to it).
type Task interface {
	// Run does the work. The caller holds no rank's lock. Run may acquire one at a time, and the lock of the process's engine by
	// t.LockProcess. It does not wait or block. Long work is divided into several tasks. The first one takes some tens of microseconds, and
	// calls t.StopPolling if others follow. If t.HoldsProcess, another goroutine does such work.
	Run(t *Tasks)
}

// taskQueue contains the tasks of a rank. Guarded by the rank's lock.
type taskQueue struct {
	// In the order of Defer.
	tasks []Task
	// Memory for tasks while they run.
	spareTasks []Task
	// A goroutine runs the tasks, including those added meanwhile.
	isRunning bool
	// Belongs to the goroutine that has set isRunning and began with this rank.
	ownRun Tasks
}

// Tasks is one goroutine's execution of tasks. Tasks of one rank run one at a time, in the order of Defer. Tasks that a task causes in other ranks run
// after it, so that the depth of the stack does not depend on the number of ranks.
type Tasks struct {
	// The goroutine held the process's lock at the beginning.
	processLocked bool
	// The wait that runs the tasks while it has poll tokens, otherwise nil.
	pollingWait poller
	// Ranks with tasks that this goroutine runs, the first one last.
	rankEngines []*Engine
}

// A poller is a wait that has poll tokens.
type poller interface {
	// returnTokens returns them. No rank's lock is held.
	returnTokens()
}

// Defer queues a task. It runs after a wait, Progress, Deliver or Release has released the rank's lock. Unlock does not run it. A goroutine under whose
// lock tasks may have been deferred therefore calls Release. Lock held.
func (e *Engine) Defer(t Task) { e.rankPart.taskQueue.tasks = append(e.rankPart.taskQueue.tasks, t) }

// Release is Unlock, followed by the deferred tasks, unless another goroutine runs them, and by the delivery to rung ranks (RankBell). The caller holds no
// other engine's lock. For a process's engine it is Unlock.
func (e *Engine) Release() { e.release(false, nil) }

// ReleaseUnder is Release for a caller that holds the lock of the process's engine.
func (e *Engine) ReleaseUnder() { e.release(true, nil) }

func (e *Engine) release(processLocked bool, wait poller) {
	if e.rankPart == nil {
		e.Unlock()
		return
	}
	if e.rankPart.taskQueue.take() {
		t := &e.rankPart.taskQueue.ownRun
		t.processLocked, t.pollingWait = processLocked, wait
		t.rankEngines = append(t.rankEngines[:0], e)
		e.Unlock()
		t.execute()
	} else {
		e.Unlock()
	}
	if e.processEngine.dueRanks.firstRank.Load() != nil {
		e.processEngine.deliverRung(processLocked)
	}
}

// take reports whether there are tasks that the caller has to run. Lock held.
func (q *taskQueue) take() bool {
	if len(q.tasks) == 0 || q.isRunning {
		return false
	}
	q.isRunning = true
	return true
}

// runTasks is Release followed by Lock, if there are tasks to run. wait is the caller if it
// has poll tokens, or nil. e is the engine of a rank. Lock held, released meanwhile.
func (e *Engine) runTasks(wait poller) {
	if len(e.rankPart.taskQueue.tasks) > 0 || e.processEngine.dueRanks.firstRank.Load() != nil {
		e.release(false, wait)
		e.Lock()
	}
}

// execute runs the tasks of the ranks until there are none.
func (t *Tasks) execute() {
	for more := len(t.rankEngines) > 0; more; {
		e := t.rankEngines[len(t.rankEngines)-1]
		q := &e.rankPart.taskQueue
		e.Lock()
		if len(q.tasks) > 0 {
			tasks := q.tasks
			q.tasks, q.spareTasks = q.spareTasks[:0], nil
			e.Unlock()
			for i, task := range tasks {
				task.Run(t)
				tasks[i] = nil
			}
			e.Lock()
			q.spareTasks = tasks
			e.Unlock()
			continue
		}
		// After running is cleared, t may belong to another goroutine if e was the first.
		t.rankEngines[len(t.rankEngines)-1] = nil
		t.rankEngines = t.rankEngines[:len(t.rankEngines)-1]
		if more = len(t.rankEngines) > 0; !more {
			t.pollingWait = nil
		}
		q.isRunning = false
		e.Unlock()
	}
}

// Deliver is Engine.Deliver for tasks.
func (t *Tasks) Deliver(e *Engine) {
	if !e.rankPart.pollWord.Polled() {
		e.Lock()
		e.poll()
		t.Release(e)
	}
}

// Release is Engine.Release for tasks. The deferred tasks of e run after this one.
func (t *Tasks) Release(e *Engine) {
	if e.rankPart.taskQueue.take() {
		t.rankEngines = append(t.rankEngines, e)
	}
	e.Unlock()
}

// StopPolling returns the poll tokens of the wait that runs the tasks, so that other waits and the
// progress goroutine poll meanwhile. Without such a wait it has no effect. No rank's lock is
// held.
func (t *Tasks) StopPolling() {
	if w := t.pollingWait; w != nil {
		t.pollingWait = nil
		w.returnTokens()
	}
}

// HoldsProcess reports whether the goroutine holds the lock of the process's engine.
func (t *Tasks) HoldsProcess() bool { return t.processLocked }

// LockProcess acquires the lock of the process's engine e, unless the goroutine holds it
// already. UnlockProcess releases it.
func (t *Tasks) LockProcess(e *Engine) {
	if !t.processLocked {
		e.Lock()
	}
}

// UnlockProcess undoes LockProcess.
func (t *Tasks) UnlockProcess(e *Engine) {
	if !t.processLocked {
		e.Unlock()
	}
}
