/* refusal.h - an error written past libmicrohttpd, which takes no response in the middle of a body.
 *
 * The socket has seen nothing of this exchange's response yet; after it the connection is to be closed. A client that has
 * sent more than was read may see a reset behind the response, and if it doesn't read at all, only that.
 * Threads: whoever makes sure that libmicrohttpd doesn't write to the socket.
 */
#ifndef KVASIR_SERVE_REFUSAL_H
#define KVASIR_SERVE_REFUSAL_H

#include "serve/metrics.h"
#include "serve/api_error.h"

/* Counted, if it could be written without waiting. */
void refusal_write(int fd, const api_error *e, metrics *figures);

#endif
