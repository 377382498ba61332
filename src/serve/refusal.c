#include "serve/refusal.h"

#include <microhttpd.h>
#include <stdio.h>
#include <sys/socket.h>

void refusal_write(int fd, const api_error *e, metrics *figures)
{
    strbuf body;
    char head[256];
    strbuf_init(&body, 0);
    api_error_json(e, &body);
    int n = snprintf(head, sizeof head,
                     "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n%s"
                     "Connection: close\r\n\r\n",
                     e->http_status, MHD_get_reason_phrase_for((unsigned)e->http_status), body.n_bytes,
                     e->http_status == 503 ? "Retry-After: 1\r\n" : "");
    struct iovec parts[] = {{head, (size_t)n}, {body.data, body.n_bytes}};
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2};
    if (!body.failed && sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) > 0) metrics_response(figures, e->http_status);
    strbuf_deinit(&body);
}
