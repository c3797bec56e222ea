/* A load that costs next to nothing: prebuilt frames out, answers dropped.
 *
 *   replay HOST PORT FRAMES [--connections N] [--in-flight N] [--requests N] [--seconds S]
 *          [--rate PER_SECOND] [--own-frame 1] [--error-at OFFSET]...
 *   replay HOST PORT FRAMES --follow FETCH_FRAME --offset-at N --records-at N --first-offset N
 *          --rate PER_SECOND --requests N [--error-at OFFSET]...
 *
 * FRAMES holds frames back to back, each with its four size bytes, exactly as they go over
 * the wire. They are sent in a circle, at most --in-flight without an answer per connection;
 * with --own-frame the first connection sends the first frame only, and so on.
 * Of an answer the first bytes are kept, to see that the error codes at the given offsets
 * (counted after the size) are zero; the rest is dropped in the kernel (MSG_TRUNC). With
 * --rate, sending keeps to a timetable and a latency counts from the time a request was due,
 * so a server that stalls is charged for the wait it causes.
 *
 * --follow measures from a record's due time to its arrival at a consumer: a second
 * connection long-polls with one fetch frame whose offset is moved on.
 *
 * One thread. Prints one line of JSON.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { HEAD_BYTES = 1024, CHECKS_MAX = 64, GATHER_MAX = 64, EVENTS_MAX = 1024 };
enum { SCRATCH_BYTES = 1 << 16, FOLLOW_BYTES = 4 << 20 };

struct frame { const char *data; size_t size; };
struct request { struct frame *frame; long due_ns; };

struct connection {
    int fd;
    long number;
    int wants_write;
    struct request *ring;   /* requests [head, next) are with the server, [next, tail) to send */
    long head, next, tail;
    size_t sent;            /* how much of the request at `next` has left */
    size_t size, have;      /* of the answer coming in, its size field included */
    char front[HEAD_BYTES];
};

static struct frame *frames;
static long frame_count;
static int error_at[CHECKS_MAX], error_checks;
static long own_frame;
static long in_flight_max = 1, requests_max, issued, answered, errors, first_error;
static uint64_t bytes_sent, bytes_received;
static double rate, seconds_max;
static long started_ns, deadline_ns;
static uint32_t *latencies;     /* in tenths of a microsecond */
static long latencies_room, latencies_count;
static int poller;

static void die(const char *what) {
    fprintf(stderr, "replay: %s: %s\n", what, strerror(errno));
    exit(1);
}

static long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

static uint32_t read_uint32(const char *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return be32toh(value);
}

static struct frame *load_frames(const char *path, long *count) {
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) < 0) die(path);
    long size = ftell(file), room = 0;
    char *data = malloc(size);
    struct frame *found = NULL;
    rewind(file);
    if (data == NULL || fread(data, 1, size, file) != (size_t)size) die(path);
    fclose(file);
    *count = 0;
    for (long at = 0; at < size; at += found[*count - 1].size) {
        if (*count == room) {
            room = room ? room * 2 : 1024;
            found = realloc(found, room * sizeof *found);
        }
        found[*count].data = data + at;
        found[(*count)++].size = read_uint32(data + at) + 4;
    }
    return found;
}

static struct connection *dial(const char *host, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct connection *c = calloc(1, sizeof *c);
    int one = 1;
    inet_pton(AF_INET, host, &address.sin_addr);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address) < 0)
        die("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    c->ring = calloc(in_flight_max, sizeof *c->ring);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &event) < 0) die("epoll");
    return c;
}

static void keep_latency(long due_ns) {
    long tenths = (now_ns() - due_ns) / 100;
    if (latencies_count == latencies_room) {
        latencies_room = latencies_room ? latencies_room * 2 : 1 << 16;
        latencies = realloc(latencies, latencies_room * sizeof *latencies);
    }
    latencies[latencies_count++] = tenths > UINT32_MAX ? UINT32_MAX : tenths;
}

/* -- sending ------------------------------------------------------------------------- */

static int is_over(long now) {
    return (requests_max && issued >= requests_max) || (deadline_ns && now >= deadline_ns);
}

static long next_due_ns(void) {
    return rate > 0 ? started_ns + (long)(issued * 1e9 / rate) : 0;
}

/* Give the connection the requests that are due, as far as its window allows. */
static void issue(struct connection *c, long now) {
    while (c->tail - c->head < in_flight_max && !is_over(now) && next_due_ns() <= now) {
        struct request *request = &c->ring[c->tail++ % in_flight_max];
        request->frame = &frames[(own_frame ? c->number : issued) % frame_count];
        request->due_ns = rate > 0 ? next_due_ns() : now;
        issued++;
    }
}

static void watch(struct connection *c) {
    int wants_write = c->next < c->tail;
    if (wants_write == c->wants_write) return;
    struct epoll_event event = {.events = EPOLLIN | (wants_write ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event);
    c->wants_write = wants_write;
}

/* Send what waits; many small frames leave in one system call. */
static void flush(struct connection *c) {
    while (c->next < c->tail) {
        struct iovec parts[GATHER_MAX];
        int count = 0;
        size_t total = 0;
        for (long i = c->next; i < c->tail && count < GATHER_MAX; i++, count++) {
            struct frame *frame = c->ring[i % in_flight_max].frame;
            size_t skip = count == 0 ? c->sent : 0;
            parts[count] = (struct iovec){(char *)frame->data + skip, frame->size - skip};
            total += frame->size - skip;
        }
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
        ssize_t n = sendmsg(c->fd, &message, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN) die("send");
        if (n < 0) break;
        bytes_sent += n;
        size_t left = n;
        for (int i = 0; i < count && left >= parts[i].iov_len; i++) {
            left -= parts[i].iov_len;
            c->next++;
            c->sent = 0;
        }
        c->sent += left;
        if ((size_t)n < total) break;
    }
    watch(c);
}

/* -- receiving ----------------------------------------------------------------------- */

static void check_answer(const char *body, size_t size) {
    for (int i = 0; i < error_checks; i++) {
        int16_t code = -1;
        if ((size_t)error_at[i] + 2 <= size) {
            memcpy(&code, body + error_at[i], 2);
            code = be16toh(code);
        }
        if (code != 0 && errors++ == 0) first_error = code;
    }
}

static void end_answer(struct connection *c) {
    size_t kept = c->size < HEAD_BYTES ? c->size : HEAD_BYTES;
    check_answer(c->front + 4, kept - 4);
    keep_latency(c->ring[c->head++ % in_flight_max].due_ns);
    answered++;
    c->have = c->size = 0;
}

/* Take in bytes that were received: the front of each answer is kept, the rest counted. */
static void feed(struct connection *c, const char *data, size_t count) {
    while (count > 0) {
        size_t wanted = (c->size ? c->size : 4) - c->have;
        size_t part = count < wanted ? count : wanted;
        if (c->have < HEAD_BYTES) {
            size_t room = HEAD_BYTES - c->have;
            memcpy(c->front + c->have, data, part < room ? part : room);
        }
        c->have += part;
        data += part;
        count -= part;
        if (c->size == 0 && c->have == 4) c->size = read_uint32(c->front) + 4;
        if (c->size && c->have == c->size) end_answer(c);
    }
}

static void receive(struct connection *c) {
    static char scratch[SCRATCH_BYTES];
    while (1) {
        size_t wanted = c->size - c->have;
        int drops = c->size > 0 && wanted > SCRATCH_BYTES && c->have >= HEAD_BYTES;
        ssize_t n = drops ? recv(c->fd, scratch, wanted, MSG_TRUNC)
                          : recv(c->fd, scratch, SCRATCH_BYTES, 0);
        if (n < 0 && errno == EAGAIN) return;
        if (n < 0) die("receive");
        if (n == 0) {
            errno = ECONNRESET;
            die("the server closed the connection");
        }
        bytes_received += n;
        if (!drops) feed(c, scratch, n);
        else if ((c->have += n) == c->size) end_answer(c);
        if (!drops && n < SCRATCH_BYTES) return;
    }
}

/* -- the two loads ------------------------------------------------------------------- */

static int wait_for_events(struct epoll_event *events, long until_ns) {
    long left = until_ns - now_ns();
    if (left < 0) left = 0;
    struct timespec limit = {left / 1000000000L, left % 1000000000L};
    int count = epoll_pwait2(poller, events, EVENTS_MAX, &limit, NULL);
    if (count < 0 && errno != EINTR) die("epoll");
    return count < 0 ? 0 : count;
}

static long next_wake_ns(long now) {
    long wake = now + 1000000000L;
    if (deadline_ns && deadline_ns > now && deadline_ns < wake) wake = deadline_ns;
    if (rate > 0 && !is_over(now) && next_due_ns() < wake) wake = next_due_ns();
    return wake;
}

static void begin(void) {
    started_ns = now_ns();
    if (seconds_max > 0) deadline_ns = started_ns + (long)(seconds_max * 1e9);
}

static void replay(const char *host, int port, int connections) {
    struct connection **all = calloc(connections, sizeof *all);
    struct epoll_event events[EVENTS_MAX];
    int turn = 0;
    for (int i = 0; i < connections; i++) {
        all[i] = dial(host, port);
        all[i]->number = i;
    }
    begin();
    for (int i = 0; i < connections; i++) {
        issue(all[i], now_ns());
        flush(all[i]);
    }
    while (answered < issued || !is_over(now_ns())) {
        int count = wait_for_events(events, next_wake_ns(now_ns()));
        for (int i = 0; i < count; i++) {
            struct connection *c = events[i].data.ptr;
            if (events[i].events & ~EPOLLOUT) receive(c);
            issue(c, now_ns());
            flush(c);
        }
        /* A timetable moves on by itself, one connection after the other. */
        for (int i = 0; rate > 0 && i < connections; i++) {
            if (is_over(now_ns()) || next_due_ns() > now_ns()) break;
            struct connection *c = all[turn++ % connections];
            issue(c, now_ns());
            flush(c);
        }
    }
}

/* The offset after the last batch of a fetch answer, or `offset` if it holds none. */
static long offset_after(const char *body, size_t size, int records_at, long offset) {
    size_t at = records_at, length = 0;
    for (int shift = 0; at < size; shift += 7) {
        unsigned char byte = body[at++];
        length |= (size_t)(byte & 0x7f) << shift;
        if (byte < 0x80) break;
    }
    size_t end = at + (length ? length - 1 : 0);
    while (at + 61 <= end && end <= size) {
        int64_t base;
        memcpy(&base, body + at, 8);
        offset = (long)be64toh(base) + read_uint32(body + at + 23) + 1;
        at += read_uint32(body + at + 8) + 12;
    }
    return offset;
}

static void follow(
    const char *host, int port, const char *path, int offset_at, int records_at, long offset
) {
    long count, first = offset;
    struct frame fetch = load_frames(path, &count)[0];
    struct connection *producer = dial(host, port), *consumer = dial(host, port);
    struct epoll_event events[EVENTS_MAX];
    char *answer = malloc(FOLLOW_BYTES);
    size_t have = 0;
    int asks = 1;
    begin();
    while (offset - first < requests_max) {
        if (asks) {
            int64_t wanted = htobe64(offset);
            memcpy((char *)fetch.data + 4 + offset_at, &wanted, 8);
            if (send(consumer->fd, fetch.data, fetch.size, MSG_NOSIGNAL) != (ssize_t)fetch.size)
                die("send fetch");
            asks = 0;
        }
        issue(producer, now_ns());
        flush(producer);
        int ready = wait_for_events(events, next_wake_ns(now_ns()));
        for (int i = 0; i < ready; i++) {
            if (events[i].data.ptr == producer) {
                long kept = latencies_count;
                if (events[i].events & ~EPOLLOUT) receive(producer);
                latencies_count = kept;     /* the acks are not what is measured here */
                continue;
            }
            ssize_t n = recv(consumer->fd, answer + have, FOLLOW_BYTES - have, 0);
            if (n <= 0) die("fetch");
            have += n;
            if (have < 4 || have < read_uint32(answer) + 4) continue;
            long next = offset_after(answer + 4, have - 4, records_at, offset);
            for (; offset < next; offset++)
                keep_latency(started_ns + (long)((offset - first) * 1e9 / rate));
            have = 0;
            asks = 1;
        }
    }
}

/* -- the report ---------------------------------------------------------------------- */

static int compare(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double percentile_us(double share) {
    long at = (long)(share * latencies_count);
    if (latencies_count == 0) return 0;
    return latencies[at < latencies_count ? at : latencies_count - 1] / 10.0;
}

static void report(double seconds) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double cpu = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
                 (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    qsort(latencies, latencies_count, sizeof *latencies, compare);
    printf("{\"seconds\": %.6f, \"requests\": %ld, \"errors\": %ld, \"first_error\": %ld, "
           "\"bytes_sent\": %lu, \"bytes_received\": %lu, \"client_cpu_seconds\": %.3f, "
           "\"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f}\n",
           seconds, answered, errors, first_error, bytes_sent, bytes_received, cpu,
           percentile_us(0.5), percentile_us(0.99), percentile_us(0.999), percentile_us(1.0));
}

int main(int argc, char **argv) {
    int connections = 1, offset_at = 0, records_at = 0;
    long first_offset = 0;
    const char *fetch_path = NULL;
    if (argc < 4 || argc % 2) {
        fprintf(stderr, "usage: see the head of replay.c\n");
        return 2;
    }
    for (int i = 4; i < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (!strcmp(name, "--connections")) connections = atoi(value);
        else if (!strcmp(name, "--in-flight")) in_flight_max = atol(value);
        else if (!strcmp(name, "--requests")) requests_max = atol(value);
        else if (!strcmp(name, "--seconds")) seconds_max = atof(value);
        else if (!strcmp(name, "--rate")) rate = atof(value);
        else if (!strcmp(name, "--error-at") && error_checks < CHECKS_MAX)
            error_at[error_checks++] = atoi(value);
        else if (!strcmp(name, "--follow")) fetch_path = value;
        else if (!strcmp(name, "--offset-at")) offset_at = atoi(value);
        else if (!strcmp(name, "--records-at")) records_at = atoi(value);
        else if (!strcmp(name, "--own-frame")) own_frame = atol(value);
        else if (!strcmp(name, "--first-offset")) first_offset = atol(value);
        else {
            fprintf(stderr, "replay: unknown option %s\n", name);
            return 2;
        }
    }
    frames = load_frames(argv[3], &frame_count);
    poller = epoll_create1(0);
    /* Else the kernel may wake us 50 us late, which is half of what we measure. */
    prctl(PR_SET_TIMERSLACK, 1000);
    if (fetch_path != NULL)
        follow(argv[1], atoi(argv[2]), fetch_path, offset_at, records_at, first_offset);
    else
        replay(argv[1], atoi(argv[2]), connections);
    report((now_ns() - started_ns) / 1e9);
    return 0;
}
