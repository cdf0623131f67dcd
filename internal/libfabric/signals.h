// What libraries do to the signals of a Go program.
#ifndef FERRY_LIBFABRIC_SIGNALS_H
#define FERRY_LIBFABRIC_SIGNALS_H

#include <signal.h>

// ferry_signals is what a process does on each signal.
typedef struct ferry_signals {
	struct sigaction action[NSIG];
} ferry_signals;

void ferry_keep_signals(ferry_signals *kept);
void ferry_give_back_signals(const ferry_signals *kept);

#endif
