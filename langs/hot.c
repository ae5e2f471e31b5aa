#include "langs/hot.h"

#include "snapshot/pages.h"

#include "base/banned.h"

#define BYTES ((uint64_t)4 << 20) /* of pages, at most */
enum { COMMITS = 64 };		  /* that use what was learnt, or that go by before it is tried again */

static void learn_from(struct furca_hot *hot, struct furca_pages *now)
{
	if (now->cut || now->written.failed) {
		furca_buf_done(&hot->last); /* much new data: the next ones tell more */
		return;
	}
	if (hot->last.len == 0) {
		furca_buf_done(&hot->last);
		hot->last = furca_buf_take(&now->written);
		return;
	}
	furca_pages_both(furca_buf_view(&hot->last), furca_buf_view(&now->written), BYTES, &hot->pages);
	furca_buf_done(&hot->last);
	hot->commits = 1;
}

void furca_hot_learn(struct furca_hot *hot)
{
	struct furca_pages now;

	if (!hot->shared)
		return;
	if (hot->commits > 0) {
		/* What was taken in advance looks written: the commit after this one is the first that can tell. */
		if (++hot->commits > COMMITS) {
			furca_buf_done(&hot->pages);
			hot->commits = 0;
		}
		return;
	}
	if (furca_pages_touched(&now) == 0)
		learn_from(hot, &now);
	furca_pages_done(&now);
}

void furca_hot_commit(struct furca_hot *hot)
{
	hot->shared = true;
	hot->due = hot->pages.len > 0 && !hot->pages.failed;
}

void furca_hot_take(struct furca_hot *hot)
{
	FURCA_AUTO_BUF struct furca_buf own = FURCA_BUF_INIT;

	hot->due = false;
	furca_pages_own(furca_buf_view(&hot->pages), &own); /* the last call may have mapped something else there */
	furca_pages_take(furca_buf_view(&own), true);
}

void furca_hot_done(struct furca_hot *hot)
{
	furca_buf_done(&hot->pages);
	furca_buf_done(&hot->last);
	*hot = (struct furca_hot){0};
}
