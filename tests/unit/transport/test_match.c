/* Matching by (peer, tag) in order, in both directions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "transport/match.h"

static fo_message message_of(int source, uint32_t tag, const void *data, size_t bytes)
{
    return (fo_message){.source = source, .tag = tag, .data = data, .bytes = bytes, .imm = 5};
}

static void test_order_and_tags(void **state)
{
    (void)state;
    fo_match match;
    assert_int_equal(fo_transport_match_init(&match, 2), FO_OK);
    fo_request requests[4];
    memset(requests, 0, sizeof requests);
    uint32_t tags[4] = {7, 8, 7, 9};
    for (int i = 0; i < 4; i++) {
        fo_transport_match_describe(&requests[i], FO_REQUEST_RECV, 1, tags[i], NULL, 0);
        assert_null(fo_transport_match_post(&match, &requests[i]));
    }
    fo_message a = message_of(1, 9, NULL, 0), b = message_of(1, 7, NULL, 0), c = b, d = b;
    fo_message other = message_of(0, 8, NULL, 0), e = message_of(1, 8, NULL, 0);
    assert_ptr_equal(fo_transport_match_arrive(&match, &a), &requests[3]);
    assert_ptr_equal(fo_transport_match_arrive(&match, &b), &requests[0]);
    assert_ptr_equal(fo_transport_match_arrive(&match, &c), &requests[2]);
    assert_null(fo_transport_match_arrive(&match, &d));     /* no third receive of tag 7 */
    assert_null(fo_transport_match_arrive(&match, &other)); /* another peer */
    assert_ptr_equal(fo_transport_match_arrive(&match, &e), &requests[1]);
    assert_ptr_equal(fo_transport_match_post(&match, &requests[0]), &d);
    assert_null(fo_transport_match_post(&match, &requests[2]));
    requests[1].peer = 0;
    assert_ptr_equal(fo_transport_match_post(&match, &requests[1]), &other);
    fo_transport_match_free(&match);
}

/* The k-th message of a tag meets the k-th receive of it, in whatever order both come. */
static void test_random_order(void **state)
{
    (void)state;
    enum { COUNT = 400, TAGS = 3 };
    static fo_message messages[COUNT];
    static fo_request requests[COUNT];
    for (uint64_t seed = 0; seed < 50; seed++) {
        fo_match match;
        int met = 0, sent = 0, posted = 0, of_message[COUNT], of_request[COUNT];
        int sent_by_tag[TAGS] = {0}, posted_by_tag[TAGS] = {0};
        assert_int_equal(fo_transport_match_init(&match, 1), FO_OK);
        while (sent < COUNT || posted < COUNT) {
            bool send = fo_base_random_below(seed, 1, (uint64_t)(sent + posted), 2);
            if (sent == COUNT || (!send && posted < COUNT)) {
                uint32_t tag = (uint32_t)posted % TAGS;
                fo_transport_match_describe(&requests[posted], FO_REQUEST_RECV, 0, tag, NULL, 0);
                of_request[posted] = posted_by_tag[tag]++;
                fo_message *message = fo_transport_match_post(&match, &requests[posted]);
                if (message) {
                    assert_int_equal(message->tag, tag);
                    assert_int_equal(of_message[message - messages], of_request[posted]);
                    met++;
                }
                posted++;
            } else {
                uint32_t tag = (uint32_t)(COUNT - 1 - sent) % TAGS;
                messages[sent] = message_of(0, tag, NULL, 0);
                of_message[sent] = sent_by_tag[tag]++;
                fo_request *request = fo_transport_match_arrive(&match, &messages[sent]);
                if (request) {
                    assert_int_equal(request->tag, tag);
                    assert_int_equal(of_request[request - requests], of_message[sent]);
                    met++;
                }
                sent++;
            }
        }
        int expected = 0;
        for (int tag = 0; tag < TAGS; tag++)
            expected +=
                sent_by_tag[tag] < posted_by_tag[tag] ? sent_by_tag[tag] : posted_by_tag[tag];
        assert_int_equal(met, expected);
        fo_transport_match_free(&match);
    }
}

static void test_delivery(void **state)
{
    (void)state;
    char source[5] = "abcd", target[5] = "";
    fo_message message = message_of(0, 1, source, 4);
    fo_request request = {0};
    fo_transport_match_describe(&request, FO_REQUEST_RECV, 0, 1, target, 4);
    assert_int_equal(fo_transport_match_result(&request, 3), FO_IN_PROGRESS);
    assert_true(fo_transport_match_deliver(&request, &message));
    assert_int_equal(fo_transport_match_result(&request, 3), FO_OK);
    assert_string_equal(target, "abcd");
    assert_ptr_equal(request.data, target);
    assert_int_equal(request.imm, 5);

    fo_transport_match_describe(&request, FO_REQUEST_VIEW, 0, 1, NULL, 4);
    assert_false(fo_transport_match_deliver(&request, &message));
    assert_ptr_equal(request.data, source);
    assert_ptr_equal(fo_transport_match_viewed(&request), &message);

    fo_transport_match_describe(&request, FO_REQUEST_RECV, 0, 1, target, 3);
    assert_true(fo_transport_match_deliver(&request, &message));
    assert_int_equal(fo_transport_match_result(&request, 3), FO_INTERNAL);
    assert_non_null(strstr(fo_last_error(), "rank 3 expected 3 bytes from rank 0"));
    assert_non_null(strstr(fo_last_error(), "4 bytes"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_and_tags),
        cmocka_unit_test(test_random_order),
        cmocka_unit_test(test_delivery),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
