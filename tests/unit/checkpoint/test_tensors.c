/* Reading safetensors files, made byte by byte. */
#include "unit/data/scratch.h"

#include "checkpoint/tensors.h"

typedef struct image {
    uint8_t bytes[4096];
    size_t size;
} image;

/* The length, the header, `data` bytes 0, 1, 2, ... */
static image image_of(const char *header, size_t data)
{
    image out = {.size = 8 + strlen(header) + data};
    size_t length = strlen(header);
    assert_true(out.size <= sizeof out.bytes);
    for (int i = 0; i < 8; i++)
        out.bytes[i] = (uint8_t)((uint64_t)length >> 8 * i);
    memcpy(out.bytes + 8, header, length);
    for (size_t i = 0; i < data; i++)
        out.bytes[8 + length + i] = (uint8_t)i;
    return out;
}

static fo_status open_image(const image *i, fo_tensor_file **file)
{
    return fo_checkpoint_open_memory("m.safetensors", i->bytes, (int64_t)i->size, file);
}

static void refused(const char *header, size_t data, fo_status status, const char *fragment)
{
    image i = image_of(header, data);
    fo_tensor_file *file;
    expect_fails(open_image(&i, &file), status, fragment);
    assert_null(file);
    assert_non_null(strstr(fo_last_error(), "m.safetensors"));
}

static void golden_file(void **state)
{
    const scratch *s = *state;
    /* two tensors, out of order in the header; spaces behind it */
    static const uint8_t golden[] =
        "\xa0\0\0\0\0\0\0\0"
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"b\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[8,14]},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]}}                  "
        "\0\0\x80\x3f\0\0\x20\xc1" /* 1, -10 */
        "\x80\x3f\0\xc0\x80\x7f";  /* 1, -2, infinite */
    const int64_t size = 8 + 160 + 14;
    fo_tensor_file *file;
    float out[3];
    assert_int_equal(sizeof golden - 1, size);
    scratch_write(scratch_path(s, "golden"), golden, (size_t)size);
    expect_ok(fo_checkpoint_open(scratch_path(s, "golden"), &file));
    assert_int_equal(fo_checkpoint_count(file), 2);
    const fo_tensor_info *a = fo_checkpoint_info(file, 0), *b = fo_checkpoint_info(file, 1);
    assert_string_equal(a->name, "a");
    assert_int_equal(a->dtype, FO_F32);
    assert_int_equal(a->dims, 2);
    assert_int_equal(a->shape[0], 1);
    assert_int_equal(a->shape[1], 2);
    assert_string_equal(b->name, "b");
    assert_int_equal(b->dtype, FO_BF16);
    assert_int_equal(b->dims, 1);
    assert_int_equal(b->shape[0], 3);
    assert_int_equal(fo_checkpoint_find(file, "a"), 0);
    assert_int_equal(fo_checkpoint_find(file, "b"), 1);
    assert_int_equal(fo_checkpoint_find(file, "c"), -1);
    assert_int_equal(fo_checkpoint_find(file, ""), -1);
    assert_string_equal(fo_checkpoint_metadata(file, "format"), "pt");
    assert_null(fo_checkpoint_metadata(file, "a"));
    expect_ok(fo_checkpoint_read_f32(file, 0, 0, 1, 0, 2, 0, out));
    assert_true(out[0] == 1.0f && out[1] == -10.0f);
    expect_ok(fo_checkpoint_read_f32(file, 1, 0, 1, 0, 3, 0, out));
    assert_true(out[0] == 1.0f && out[1] == -2.0f && out[2] > 3e38f);
    assert_memory_equal(fo_checkpoint_data(file, 1), golden + 8 + 160 + 8, 6);
    assert_null(fo_checkpoint_data(file, 2));
    assert_null(fo_checkpoint_info(file, -1));
    fo_checkpoint_close(file);
    for (int64_t torn = 0; torn < size; torn++) {
        scratch_write(scratch_path(s, "torn"), golden, (size_t)torn);
        expect_fails(fo_checkpoint_open(scratch_path(s, "torn"), &file), FO_FORMAT,
                     torn < 8         ? "expected a safetensors file"
                     : torn < 8 + 160 ? "its header takes 160 by offset 0; it is torn"
                                      : "the file is torn");
    }
}

static void rectangles(void **state)
{
    (void)state;
    const char *header = "{\"t\":{\"dtype\":\"F32\",\"shape\":[2,3,70],\"data_offsets\":[0,1680]}}";
    image i = image_of(header, 1680);
    fo_tensor_file *file;
    float value, out[6 * 70], *data = (float *)(void *)malloc(1680);
    assert_non_null(data);
    for (int k = 0; k < 420; k++)
        data[k] = (float)k;
    memcpy(i.bytes + 8 + strlen(header), data, 1680);
    free(data);
    expect_ok(open_image(&i, &file));
    static const int64_t parts[][4] = {{0, 6, 0, 70}, {5, 1, 69, 1}, {1, 4, 2, 65}, {2, 3, 0, 64}};
    for (int p = 0; p < 4; p++) {
        int64_t row = parts[p][0], count = parts[p][1], col = parts[p][2], width = parts[p][3];
        for (int transpose = 0; transpose < 2; transpose++) {
            memset(out, 0, sizeof out);
            expect_ok(fo_checkpoint_read_f32(file, 0, row, count, col, width, transpose, out));
            for (int64_t r = 0; r < count; r++)
                for (int64_t c = 0; c < width; c++) {
                    value = out[transpose ? c * count + r : r * width + c];
                    assert_true(value == (float)((row + r) * 70 + col + c));
                }
        }
    }
    static const int64_t wrong[][4] = {{-1, 1, 0, 1},        {0, 7, 0, 1},
                                       {6, 1, 0, 1},         {0, -1, 0, 1},
                                       {0, 1, -1, 1},        {0, 1, 0, 71},
                                       {0, 1, 70, 1},        {0, 1, 0, -1},
                                       {1, INT64_MAX, 0, 1}, {0, 1, INT64_MAX, INT64_MAX}};
    for (size_t w = 0; w < sizeof wrong / sizeof wrong[0]; w++)
        expect_fails(fo_checkpoint_read_f32(file, 0, wrong[w][0], wrong[w][1], wrong[w][2],
                                            wrong[w][3], 0, out),
                     FO_INVALID, "it has 6 rows and 70 columns");
    expect_ok(fo_checkpoint_read_f32(file, 0, 6, 0, 70, 0, 1, out));
    expect_fails(fo_checkpoint_read_f32(file, 1, 0, 0, 0, 0, 0, out), FO_INVALID, "it has 1");
    expect_fails(fo_checkpoint_read_f32(file, -1, 0, 0, 0, 0, 0, out), FO_INVALID, "number -1");
    fo_checkpoint_close(file);
}

static void legal_headers(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data;
        int count;
    } legal[] = {
        {"{}", 0, 0},
        {"{}      ", 0, 0},
        {"{\"__metadata__\":{}}", 0, 0},
        {"{\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, 1},
        {"{\"e\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, 1},
        {"{\"e\":{\"dtype\":\"F32\",\"shape\":[3,0,4611686018427387904],\"data_offsets\":[0,0]}}",
         0, 1},
        {"{\"a\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[0,2]},"
         "\"e\":{\"dtype\":\"F32\",\"shape\":[0,5],\"data_offsets\":[2,2]},"
         "\"b\":{\"shape\":[1,1,1,1],\"data_offsets\":[2,6],\"dtype\":\"F32\"}}",
         6, 3},
        {"{\"\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, 1},
        {"{\"\\u00e9\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4, 1},
    };
    for (size_t l = 0; l < sizeof legal / sizeof legal[0]; l++) {
        image i = image_of(legal[l].header, legal[l].data);
        fo_tensor_file *file;
        float out[4];
        expect_ok(open_image(&i, &file));
        assert_int_equal(fo_checkpoint_count(file), legal[l].count);
        for (int t = 0; t < legal[l].count; t++) {
            const fo_tensor_info *info = fo_checkpoint_info(file, t);
            assert_int_equal(fo_checkpoint_find(file, info->name), t);
            int64_t width = info->dims > 0 && info->shape[0] == 0 ? 0 : 1;
            if (info->dims < 3)
                expect_ok(fo_checkpoint_read_f32(file, t, 0, width, 0, width, 0, out));
        }
        fo_checkpoint_close(file);
    }
}

#define TENSOR(dtype, shape, offsets) \
    "{\"w\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void each_field_corrupted(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        fo_status status;
        const char *fragment;
    } wrong[] = {
        {TENSOR("\"F33\"", "[2]", "[0,8]"), FO_FORMAT,
         "tensor 'w' has the unknown dtype 'F33', expected F32"},
        {TENSOR("\"f32\"", "[2]", "[0,8]"), FO_FORMAT, "unknown dtype 'f32'"},
        {TENSOR("\"I64\"", "[1]", "[0,8]"), FO_UNSUPPORTED,
         "tensor 'w' has dtype I64, expected F32 or BF16"},
        {TENSOR("\"F16\"", "[4]", "[0,8]"), FO_UNSUPPORTED, "has dtype F16"},
        {TENSOR("32", "[2]", "[0,8]"), FO_FORMAT, "has no dtype"},
        {TENSOR("\"F32\"", "2", "[0,8]"), FO_FORMAT, "has no shape"},
        {TENSOR("\"F32\"", "[-2]", "[0,8]"), FO_FORMAT, "place 0 of its shape no whole number"},
        {TENSOR("\"F32\"", "[1,2.0]", "[0,8]"), FO_FORMAT, "place 1 of its shape no whole number"},
        {TENSOR("\"F32\"", "[true]", "[0,8]"), FO_FORMAT, "no whole number"},
        {TENSOR("\"F32\"", "[99999999999999999999]", "[0,8]"), FO_FORMAT, "too big integer"},
        {TENSOR("\"F32\"", "[1,1,1,1,2]", "[0,8]"), FO_UNSUPPORTED,
         "has 5 dimensions, expected at most 4"},
        {TENSOR("\"F32\"", "[4611686018427387904,2]", "[0,8]"), FO_FORMAT, "beyond 64 bits"},
        {TENSOR("\"F32\"", "[4611686018427387904]", "[0,8]"), FO_FORMAT, "beyond 64 bits"},
        {TENSOR("\"F32\"", "[4294967296,4294967296]", "[0,0]"), FO_FORMAT, "beyond 64 bits"},
        {TENSOR("\"F32\"", "[3]", "[0,8]"), FO_FORMAT,
         "has 8 bytes by its data_offsets, expected 12"},
        {TENSOR("\"BF16\"", "[2]", "[0,8]"), FO_FORMAT, "expected 4 by its shape and dtype BF16"},
        {TENSOR("\"F32\"", "[2]", "[0]"), FO_FORMAT, "has no data_offsets"},
        {TENSOR("\"F32\"", "[2]", "[0,8,8]"), FO_FORMAT, "has no data_offsets"},
        {TENSOR("\"F32\"", "[2]", "{}"), FO_FORMAT, "has no data_offsets"},
        {TENSOR("\"F32\"", "[2]", "[0,8.0]"), FO_FORMAT, "has no data_offsets"},
        {TENSOR("\"F32\"", "[2]", "[-8,0]"), FO_FORMAT, "[-8, 0], expected 0 <= begin <= end"},
        {TENSOR("\"F32\"", "[2]", "[8,0]"), FO_FORMAT, "[8, 0], expected 0 <= begin <= end"},
        {TENSOR("\"F32\"", "[3]", "[0,12]"), FO_FORMAT,
         "ends at offset 12 of the data, which has 8 bytes"},
        {TENSOR("\"F32\"", "[2]", "[0,9223372036854775807]"), FO_FORMAT,
         "ends at offset 9223372036854775807"},
        {TENSOR("\"F32\"", "[1]", "[4,8]"), FO_FORMAT,
         "begins at offset 4 of the data, expected 0: there is a hole"},
        {TENSOR("\"F32\"", "[1]", "[0,4]"), FO_FORMAT, "has 8 bytes of data"},
        {"{\"w\":[]}", FO_FORMAT, "tensor 'w' is no object"},
        {"{\"w\":{}}", FO_FORMAT, "tensor 'w' has no dtype"},
        {"{\"__metadata__\":[]}", FO_FORMAT, "__metadata__ is no object"},
        {"{\"__metadata__\":{\"k\":1}}", FO_FORMAT, "__metadata__ has no string for 'k'"},
        {"{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", FO_FORMAT, "duplicate object key"},
        {"{}", FO_FORMAT, "has 8 bytes of data (from offset 10), expected 0"},
        {"[]", FO_FORMAT, "has another byte at offset 8, expected '{'"},
        {" {}", FO_FORMAT, "another byte at offset 8"},
        {"", FO_FORMAT, "has an empty header at offset 8"},
        {"{", FO_FORMAT, "wrong near offset 9"},
        {"{} x", FO_FORMAT, "expected JSON in UTF-8"},
        {"{\"w\":NaN}", FO_FORMAT, "expected JSON"},
        {"{\"\xff\":1}", FO_FORMAT, "expected JSON in UTF-8"},
        {"{\"a\\u0000\":1}", FO_FORMAT, "expected JSON"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        refused(wrong[i].header, 8, wrong[i].status, wrong[i].fragment);
}

#define F32(name, begin, end) \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[" #begin "," #end "]}"

static void holes_overlaps_duplicates(void **state)
{
    (void)state;
    refused("{" F32("a", 0, 4) "," F32("b", 8, 12) "}", 12, FO_FORMAT,
            "tensor 'b' begins at offset 8 of the data, expected 4: there is a hole before it");
    refused("{" F32("a", 0, 4) "," F32("b", 2, 6) "}", 6, FO_FORMAT,
            "tensor 'b' begins at offset 2 of the data, expected 4: there is an overlap");
    refused("{" F32("a", 0, 4) "," F32("b", 0, 4) "}", 4, FO_FORMAT, "there is an overlap");
    refused("{" F32("a", 0, 4) "," F32("a", 4, 8) "}", 8, FO_FORMAT, "duplicate object key");
    refused("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
            FO_FORMAT, "duplicate object key");
    refused("{" F32("a", 0, 4) "}", 5, FO_FORMAT, "nothing may follow the last tensor");
    refused("{" F32("a", 0, 4) "," F32("b", 4, 8) "}", 7, FO_FORMAT, "which has 7 bytes");
}

static void header_lengths(void **state)
{
    (void)state;
    static const struct {
        uint64_t length;
        const char *fragment;
    } wrong[] = {
        {0, "an empty header"},
        {1, "wrong near offset"},
        {53, "wrong near offset"},
        {57, "has 5 bytes of data (from offset 65), expected 4"},
        {59, "wrong near offset 67"},
        {62, "wrong near offset"},
        {63, "its header takes 63 by offset 0; it is torn"},
        {100000000, "its header takes 100000000"},
        {100000001, "a length of 100000001 (offset 0), expected at most 100000000"},
        {UINT64_MAX, "a length of 18446744073709551615"},
        {UINT64_C(1) << 63, "a length of 9223372036854775808"},
        {UINT64_C(0x3b00000000000000), "a length of"}, /* big-endian */
    };
    for (size_t w = 0; w < sizeof wrong / sizeof wrong[0]; w++) {
        image i =
            image_of("{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}    ", 4);
        assert_int_equal(i.size, 8 + 58 + 4);
        fo_tensor_file *file;
        for (int b = 0; b < 8; b++)
            i.bytes[b] = (uint8_t)(wrong[w].length >> 8 * b);
        expect_fails(open_image(&i, &file), FO_FORMAT, wrong[w].fragment);
    }
}

/* Two tensors, the first of 3 GiB, in a file with holes. */
static void beyond_two_gigabytes(void **state)
{
    const scratch *s = *state;
    static const char header[] =
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[3,268435456],\"data_offsets\":[0,3221225472]},"
        "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[3221225472,3221225480]}}";
    const char *path = scratch_path(s, "large.safetensors");
    const int64_t data = 8 + (int64_t)sizeof header - 1, size = data + INT64_C(3221225480);
    image start = image_of(header, 0);
    int file = open(path, O_RDWR | O_CREAT, 0600);
    assert_true(file >= 0);
    if (ftruncate(file, size) != 0) {
        close(file);
        skip();
    }
    float values[3] = {7, 8, 9}, out[3];
    assert_int_equal(pwrite(file, start.bytes, start.size, 0), start.size);
    assert_int_equal(pwrite(file, values, 12, size - 12), 12);
    fo_tensor_file *tensors;
    expect_ok(fo_checkpoint_open(path, &tensors));
    expect_ok(fo_checkpoint_read_f32(tensors, 0, 2, 1, 268435455, 1, 0, out));
    expect_ok(fo_checkpoint_read_f32(tensors, 1, 0, 1, 0, 2, 1, out + 1));
    assert_memory_equal(out, values, sizeof values);
    expect_ok(fo_checkpoint_read_f32(tensors, 0, 1, 2, 268435454, 1, 0, out));
    assert_true(out[0] == 0 && out[1] == 0);
    fo_checkpoint_close(tensors);
    assert_int_equal(ftruncate(file, size - 1), 0);
    close(file);
    expect_fails(fo_checkpoint_open(path, &tensors), FO_FORMAT,
                 "tensor 'b' ends at offset 3221225480 of the data, which has 3221225479 bytes");
    unlink(path);
}

static void unreadable_files(void **state)
{
    const scratch *s = *state;
    fo_tensor_file *file;
    expect_fails(fo_checkpoint_open(scratch_path(s, "none"), &file), FO_IO, "No such file");
    expect_fails(fo_checkpoint_open(s->folder, &file), FO_IO, "is a directory");
    assert_int_equal(mkfifo(scratch_path(s, "pipe"), 0600), 0);
    expect_fails(fo_checkpoint_open(scratch_path(s, "pipe"), &file), FO_IO, "not a regular file");
    scratch_write(scratch_path(s, "empty"), "", 0);
    expect_fails(fo_checkpoint_open(scratch_path(s, "empty"), &file), FO_FORMAT, "has 0 bytes");
    assert_null(file);
    fo_checkpoint_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_file),
        cmocka_unit_test(rectangles),
        cmocka_unit_test(legal_headers),
        cmocka_unit_test(each_field_corrupted),
        cmocka_unit_test(holes_overlaps_duplicates),
        cmocka_unit_test(header_lengths),
        cmocka_unit_test(beyond_two_gigabytes),
        cmocka_unit_test(unreadable_files),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
