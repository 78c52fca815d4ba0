/* The stand-in's values: making, changing, asking. Parsing and printing are in
 * text.c. */
#include "cJSON.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { KIND = 0xff }; /* the bits of a type that say what it is */

void *cJSON_malloc(size_t bytes)
{
    return malloc(bytes);
}

void cJSON_free(void *mem)
{
    free(mem);
}

void cJSON_Delete(cJSON *item)
{
    while (item) {
        cJSON *next = item->next;
        cJSON_Delete(item->child);
        free(item->valuestring);
        if (!(item->type & cJSON_StringIsConst))
            free(item->string);
        free(item);
        item = next;
    }
}

/* ---- making ---- */

static cJSON *make(int type)
{
    cJSON *item = calloc(1, sizeof *item);
    if (item)
        item->type = type;
    return item;
}

cJSON *cJSON_CreateObject(void)
{
    return make(cJSON_Object);
}

cJSON *cJSON_CreateArray(void)
{
    return make(cJSON_Array);
}

static cJSON *text_item(int type, const char *text)
{
    cJSON *item = make(type);
    if (item && !(item->valuestring = strdup(text))) {
        free(item);
        return NULL;
    }
    return item;
}

cJSON *cJSON_CreateString(const char *text)
{
    return text_item(cJSON_String, text);
}

double cJSON_SetNumberHelper(cJSON *item, double number)
{
    item->valuedouble = number;
    item->valueint = number >= INT_MAX   ? INT_MAX
                     : number <= INT_MIN ? INT_MIN
                     : number == number  ? (int)number
                                         : 0;
    return number;
}

cJSON *cJSON_CreateNumber(double number)
{
    cJSON *item = make(cJSON_Number);
    if (item)
        cJSON_SetNumberHelper(item, number);
    return item;
}

cJSON *cJSON_CreateStringArray(const char *const *texts, int n)
{
    cJSON *array = cJSON_CreateArray();
    for (int i = 0; array && i < n; i++)
        if (!cJSON_AddItemToArray(array, cJSON_CreateString(texts[i]))) {
            cJSON_Delete(array);
            return NULL;
        }
    return array;
}

/* As it is, without what hangs on it. */
static cJSON *shallow_copy(const cJSON *item)
{
    cJSON *copy = make(item->type & ~cJSON_StringIsConst);
    if (!copy)
        return NULL;
    copy->valueint = item->valueint;
    copy->valuedouble = item->valuedouble;
    copy->valuestring = item->valuestring ? strdup(item->valuestring) : NULL;
    copy->string = item->string ? strdup(item->string) : NULL;
    return copy;
}

cJSON *cJSON_Duplicate(const cJSON *item, cJSON_bool deep)
{
    cJSON *copy = item ? shallow_copy(item) : NULL, *child;
    if (!copy || !deep)
        return copy;
    cJSON_ArrayForEach(child, item)
        if (!cJSON_AddItemToArray(copy, cJSON_Duplicate(child, true))) {
            cJSON_Delete(copy);
            return NULL;
        }
    return copy;
}

/* ---- adding ---- */

cJSON_bool cJSON_AddItemToArray(cJSON *array, cJSON *item)
{
    if (!array || !item)
        return false;
    item->next = NULL;
    if (array->child) {
        item->prev = array->child->prev;
        item->prev->next = item;
        array->child->prev = item;
    } else {
        array->child = item->prev = item;
    }
    return true;
}

cJSON_bool cJSON_AddItemToObject(cJSON *object, const char *key, cJSON *item)
{
    char *copy = item ? strdup(key) : NULL;
    if (!copy || !object) {
        free(copy);
        return false;
    }
    free(item->string);
    item->string = copy;
    return cJSON_AddItemToArray(object, item);
}

static cJSON *add(cJSON *object, const char *key, cJSON *item)
{
    if (cJSON_AddItemToObject(object, key, item))
        return item;
    cJSON_Delete(item);
    return NULL;
}

cJSON *cJSON_AddObjectToObject(cJSON *object, const char *key)
{
    return add(object, key, cJSON_CreateObject());
}

cJSON *cJSON_AddArrayToObject(cJSON *object, const char *key)
{
    return add(object, key, cJSON_CreateArray());
}

cJSON *cJSON_AddStringToObject(cJSON *object, const char *key, const char *text)
{
    return add(object, key, cJSON_CreateString(text));
}

cJSON *cJSON_AddNumberToObject(cJSON *object, const char *key, double number)
{
    return add(object, key, cJSON_CreateNumber(number));
}

cJSON *cJSON_AddBoolToObject(cJSON *object, const char *key, cJSON_bool value)
{
    return add(object, key, make(value ? cJSON_True : cJSON_False));
}

cJSON *cJSON_AddTrueToObject(cJSON *object, const char *key)
{
    return cJSON_AddBoolToObject(object, key, true);
}

cJSON *cJSON_AddNullToObject(cJSON *object, const char *key)
{
    return add(object, key, make(cJSON_NULL));
}

/* ---- finding ---- */

typedef int compare_fn(const char *a, const char *b);

static cJSON *find(const cJSON *object, const char *key, compare_fn *compare)
{
    cJSON *item;
    cJSON_ArrayForEach(item, object)
        if (item->string && compare(item->string, key) == 0)
            return item;
    return NULL;
}

cJSON *cJSON_GetObjectItem(const cJSON *object, const char *key)
{
    return find(object, key, strcasecmp);
}

cJSON *cJSON_GetObjectItemCaseSensitive(const cJSON *object, const char *key)
{
    return find(object, key, strcmp);
}

cJSON_bool cJSON_HasObjectItem(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItem(object, key) != NULL;
}

cJSON *cJSON_GetArrayItem(const cJSON *array, int i)
{
    cJSON *item;
    cJSON_ArrayForEach(item, array)
        if (i-- == 0)
            return item;
    return NULL;
}

int cJSON_GetArraySize(const cJSON *array)
{
    int n = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, array)
        n++;
    return n;
}

static void delete_from(cJSON *object, cJSON *item)
{
    if (!item)
        return;
    if (item == object->child)
        object->child = item->next;
    else
        item->prev->next = item->next;
    if (item->next)
        item->next->prev = item->prev;
    else if (object->child)
        object->child->prev = item->prev;
    item->next = NULL;
    cJSON_Delete(item);
}

void cJSON_DeleteItemFromObject(cJSON *object, const char *key)
{
    delete_from(object, cJSON_GetObjectItem(object, key));
}

void cJSON_DeleteItemFromObjectCaseSensitive(cJSON *object, const char *key)
{
    delete_from(object, cJSON_GetObjectItemCaseSensitive(object, key));
}

/* ---- asking ---- */

static bool is(const cJSON *item, int types)
{
    return item && (item->type & KIND & types) != 0;
}

#define IS(name, types)                           \
    cJSON_bool cJSON_Is##name(const cJSON *item) \
    {                                             \
        return is(item, types);                   \
    }
IS(String, cJSON_String)
IS(Number, cJSON_Number)
IS(Object, cJSON_Object)
IS(Array, cJSON_Array)
IS(Bool, cJSON_True | cJSON_False)
IS(True, cJSON_True)
IS(False, cJSON_False)
IS(Null, cJSON_NULL)
#undef IS

static bool same_arrays(const cJSON *a, const cJSON *b)
{
    for (a = a->child, b = b->child; a && b; a = a->next, b = b->next)
        if (!cJSON_Compare(a, b, true))
            return false;
    return a == b;
}

static bool same_objects(const cJSON *a, const cJSON *b)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, a)
        if (!cJSON_Compare(item, find(b, item->string, strcmp), true))
            return false;
    return cJSON_GetArraySize(a) == cJSON_GetArraySize(b);
}

/* Keys are always compared exactly. */
cJSON_bool cJSON_Compare(const cJSON *a, const cJSON *b, cJSON_bool exact)
{
    (void)exact;
    if (!a || !b || (a->type & KIND) != (b->type & KIND))
        return false;
    switch (a->type & KIND) {
    case cJSON_Number:
        return a->valuedouble == b->valuedouble;
    case cJSON_String:
    case cJSON_Raw:
        return strcmp(a->valuestring, b->valuestring) == 0;
    case cJSON_Array:
        return same_arrays(a, b);
    case cJSON_Object:
        return same_objects(a, b);
    default:
        return true;
    }
}
