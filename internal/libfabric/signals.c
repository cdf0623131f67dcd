// Some providers install handlers for SIGSEGV, SIGTERM and others, when they are loaded,
// opened or connect for the first time, and most of those don't run on the signal's own
// stack. Then a nil pointer that a Go program would recover from, or a signal that it
// waits for, ends the process. So a call that may do that is put between keeping and
// giving back.
#include "signals.h"

#include <string.h>

void ferry_keep_signals(ferry_signals *kept)
{
	memset(kept, 0, sizeof(*kept));
	for (int s = 1; s < NSIG; s++)
		sigaction(s, NULL, &kept->action[s]); // fails for those of the C library
}

static void *handler(const struct sigaction *a)
{
	return a->sa_flags & SA_SIGINFO ? (void *)a->sa_sigaction : (void *)a->sa_handler;
}

// ferry_give_back_signals takes back what was taken since. What Go itself has changed
// meanwhile stays: Go has one handler for all signals, that of SIGURG among them, whose
// others are the default and to ignore it.
void ferry_give_back_signals(const ferry_signals *kept)
{
	void *go = handler(&kept->action[SIGURG]);
	for (int s = 1; s < NSIG; s++) {
		struct sigaction now;
		if (sigaction(s, NULL, &now))
			continue;
		void *h = handler(&now);
		if (h != handler(&kept->action[s]) && h != go && h != (void *)SIG_DFL && h != (void *)SIG_IGN)
			sigaction(s, &kept->action[s], NULL);
	}
}
