package local

import "strconv"

// otherLauncher returns the variable that says that a launcher which isn't
// ferry's started this process as one of several, or as one of nobody knows how
// many; "" if the process is by itself.
func otherLauncher(lookup func(string) (string, bool)) string {
	// How many there are is known best by the launcher that is nearest: a
	// process manager that srun started has Slurm's variables around it.
	known := false
	for _, name := range []string{"PMI_SIZE", "OMPI_COMM_WORLD_SIZE"} {
		if several, ok := severalIn(lookup, name); several {
			return name
		} else if ok {
			known = true
		}
	}
	if known {
		return "" // one of one: alone in any case
	}
	for _, name := range []string{"PMI_FD", "PMI_PORT", "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PALS_RANKID"} {
		if _, ok := lookup(name); ok {
			return name
		}
	}
	return slurm(lookup)
}

// slurm is otherLauncher for `srun` without a PMI. Its tasks have SLURM_PROCID
// and the number of tasks of their step. A batch script, and a shell inside an
// allocation, have the number of tasks that the job may start, and are none of
// them: what they start themselves is by itself.
func slurm(lookup func(string) (string, bool)) string {
	const rank, stepTasks, tasks = "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"
	several, inStep := severalIn(lookup, stepTasks)
	if several {
		return stepTasks
	}
	if inStep {
		return ""
	}
	id, ok := lookup(rank)
	if !ok {
		return ""
	}
	if id != "0" {
		return rank // not the first of one
	}
	for _, name := range []string{"SLURM_STEP_ID", "SLURM_STEPID"} {
		if _, ok := lookup(name); ok {
			inStep = true
		}
	}
	if _, job := lookup("SLURM_JOB_ID"); job && !inStep {
		return "" // the batch script
	}
	several, counted := severalIn(lookup, tasks)
	switch {
	case several:
		return tasks
	case !counted:
		return rank
	}
	return ""
}

// severalIn reads a number of processes: ok is false if it isn't set, and what
// is no number counts as several.
func severalIn(lookup func(string) (string, bool), name string) (several, ok bool) {
	text, ok := lookup(name)
	if !ok {
		return false, false
	}
	n, err := strconv.Atoi(text)
	return err != nil || n > 1, true
}
