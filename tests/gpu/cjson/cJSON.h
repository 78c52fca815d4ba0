/* A stand-in for cJSON on test machines that have only a compiler: the part of
 * its interface that the programs use, so that `make check-gpu` can build them.
 * The programs that people install are linked to the real library. */
#ifndef GPT_TESTS_GPU_CJSON_H
#define GPT_TESTS_GPU_CJSON_H

#include <stddef.h>

enum {
    cJSON_Invalid = 0,
    cJSON_False = 1,
    cJSON_True = 2,
    cJSON_NULL = 4,
    cJSON_Number = 8,
    cJSON_String = 16,
    cJSON_Array = 32,
    cJSON_Object = 64,
    cJSON_Raw = 128,
    cJSON_StringIsConst = 512,
};

/* A value; the items of arrays and objects hang at `child`, whose `prev` is
 * the last of them. */
typedef struct cJSON {
    struct cJSON *next, *prev, *child;
    int type;
    char *valuestring;
    int valueint;
    double valuedouble;
    char *string; /* its key in an object */
} cJSON;

typedef int cJSON_bool;

void *cJSON_malloc(size_t bytes);
void cJSON_free(void *mem);
void cJSON_Delete(cJSON *item);

cJSON *cJSON_ParseWithLength(const char *text, size_t len);
cJSON *cJSON_ParseWithLengthOpts(const char *text, size_t len,
                                 const char **end, cJSON_bool whole);
char *cJSON_Print(const cJSON *item);
char *cJSON_PrintUnformatted(const cJSON *item);

cJSON *cJSON_CreateObject(void);
cJSON *cJSON_CreateArray(void);
cJSON *cJSON_CreateString(const char *text);
cJSON *cJSON_CreateNumber(double number);
cJSON *cJSON_CreateStringArray(const char *const *texts, int n);
cJSON *cJSON_Duplicate(const cJSON *item, cJSON_bool deep);
double cJSON_SetNumberHelper(cJSON *item, double number);
#define cJSON_SetNumberValue(item, number) cJSON_SetNumberHelper(item, number)

cJSON_bool cJSON_AddItemToArray(cJSON *array, cJSON *item);
cJSON_bool cJSON_AddItemToObject(cJSON *object, const char *key, cJSON *item);
cJSON *cJSON_AddObjectToObject(cJSON *object, const char *key);
cJSON *cJSON_AddArrayToObject(cJSON *object, const char *key);
cJSON *cJSON_AddStringToObject(cJSON *object, const char *key,
                               const char *text);
cJSON *cJSON_AddNumberToObject(cJSON *object, const char *key, double number);
cJSON *cJSON_AddBoolToObject(cJSON *object, const char *key, cJSON_bool value);
cJSON *cJSON_AddTrueToObject(cJSON *object, const char *key);
cJSON *cJSON_AddNullToObject(cJSON *object, const char *key);
void cJSON_DeleteItemFromObject(cJSON *object, const char *key);
void cJSON_DeleteItemFromObjectCaseSensitive(cJSON *object, const char *key);

cJSON *cJSON_GetObjectItem(const cJSON *object, const char *key);
cJSON *cJSON_GetObjectItemCaseSensitive(const cJSON *object, const char *key);
cJSON_bool cJSON_HasObjectItem(const cJSON *object, const char *key);
cJSON *cJSON_GetArrayItem(const cJSON *array, int i);
int cJSON_GetArraySize(const cJSON *array);
cJSON_bool cJSON_Compare(const cJSON *a, const cJSON *b, cJSON_bool exact);

cJSON_bool cJSON_IsString(const cJSON *item);
cJSON_bool cJSON_IsNumber(const cJSON *item);
cJSON_bool cJSON_IsObject(const cJSON *item);
cJSON_bool cJSON_IsArray(const cJSON *item);
cJSON_bool cJSON_IsBool(const cJSON *item);
cJSON_bool cJSON_IsTrue(const cJSON *item);
cJSON_bool cJSON_IsFalse(const cJSON *item);
cJSON_bool cJSON_IsNull(const cJSON *item);

#define cJSON_ArrayForEach(element, array)                              \
    for ((element) = (array) != NULL ? (array)->child : NULL; (element); \
         (element) = (element)->next)

#endif
