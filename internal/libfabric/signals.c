// Some providers install handlers for SIGSEGV, SIGTERM and other signals when they are loaded, opened or connected for the first time, and most
// of these handlers don't run on the signal stack. A nil pointer that a Go program would recover from, or a signal that it expects, then
// ends the process. Calls that may install handlers are therefore made between ferry_keep_signals and ferry_give_back_signals.
#include "signals.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

void ferry_keep_signals(ferry_signals *kept)
{
	memset(kept, 0, sizeof(*kept));
	for (int s = 1; s < NSIG; s++)
		sigaction(s, NULL, &kept->action[s]); // It fails for signals of the C library.
}

static void *handler(const struct sigaction *a)
{
	return a->sa_flags & SA_SIGINFO ? (void *)a->sa_sigaction : (void *)a->sa_handler;
}

// ferry_give_back_signals restores handlers that were replaced since ferry_keep_signals, except by Go. Go uses the default, ignores a signal, or
// has one handler for all signals, including SIGURG.
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

static const int deadly[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
enum { DEADLY = sizeof(deadly) / sizeof(deadly[0]) };

static __thread const char *guarded, *doing;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static int guards; // Number of guarded threads.
static struct sigaction before[DEADLY];

static void say(const char *text)
{
	ssize_t n = write(STDERR_FILENO, text, strlen(text));
	(void)n;
}

// taken_down names the library and raises the signal again with the default action. In other threads it calls the previous
// handler.
static void taken_down(int s, siginfo_t *info, void *context)
{
	if (!guarded) {
		for (int i = 0; i < DEADLY; i++)
			if (deadly[i] == s && before[i].sa_flags & SA_SIGINFO)
				before[i].sa_sigaction(s, info, context);
		return;
	}
	say("ferry: mtl ofi: the library ");
	say(guarded);
	say(" crashed the process when it ");
	say(doing);
	say(": mtl.ofi.library selects another one, mtl.ofi.provider_include restricts the queried providers, and mtl=^ofi disables it\n");
	signal(s, SIG_DFL);
	raise(s);
}

void ferry_guard(const char *library, const char *did)
{
	pthread_mutex_lock(&guard);
	if (guards++ == 0)
		for (int i = 0; i < DEADLY; i++) {
			struct sigaction a = {.sa_sigaction = taken_down, .sa_flags = SA_SIGINFO | SA_ONSTACK};
			sigaction(deadly[i], NULL, &before[i]);
			a.sa_mask = before[i].sa_mask;
			sigaction(deadly[i], &a, NULL);
		}
	pthread_mutex_unlock(&guard);
	guarded = library;
	doing = did;
}

void ferry_unguard(void)
{
	guarded = NULL;
	pthread_mutex_lock(&guard);
	if (--guards == 0)
		for (int i = 0; i < DEADLY; i++)
			sigaction(deadly[i], &before[i], NULL);
	pthread_mutex_unlock(&guard);
}
