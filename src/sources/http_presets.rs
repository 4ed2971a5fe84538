//! The terms of lists that providers document: one row of a table for each.
//!
//! Only what a public document of the provider says stands here. Not here: terms that a person gives
//! ([`super::http_settings`]).

use crate::base::words::words;

words! {
    /// Whose list is read.
    #[derive(Default)]
    pub enum ListPreset as "ListPreset" {
        /// Any list: all terms are in the settings.
        #[default]
        Json = "json",
        /// The events of a Stripe account.
        Stripe = "stripe",
        /// The deliveries of a GitHub webhook.
        Github = "github",
        /// The events of a `GoCardless` account.
        Gocardless = "gocardless",
        /// The notifications of a `PayPal` app.
        Paypal = "paypal",
        /// Orders of a Shopify shop.
        Shopify = "shopify",
        /// Orders of a WooCommerce shop.
        Woocommerce = "woocommerce",
        /// The newest payments of a Mollie profile.
        Mollie = "mollie",
        /// Invoices of a Xero organisation.
        Xero = "xero",
        /// Objects of a `HubSpot` account.
        Hubspot = "hubspot",
        /// Records of Odoo.
        Odoo = "odoo",
        /// Documents of ERPNext.
        Erpnext = "erpnext",
        /// Documents of Business Central.
        BusinessCentral = "business_central",
    }
}

words! {
    /// The form of a time in a query.
    pub enum SinceForm {
        /// Whole seconds since 1970.
        UnixSeconds = "unix_seconds",
        /// Milliseconds since 1970.
        UnixMs = "unix_ms",
        /// `2026-01-31T12:00:00.000Z`.
        Rfc3339 = "rfc3339",
        /// `2026-01-31T12:00:00Z`.
        Rfc3339Seconds = "rfc3339_seconds",
        /// `2026-01-31 12:00:00`, in UTC.
        DateTime = "date_time",
        /// `2026-01-31T12:00:00`, in UTC.
        IsoDateTime = "iso_date_time",
    }
}

/// The terms of a preset; each can be replaced in the settings of a source.
#[derive(Debug)]
pub(super) struct PresetTerms {
    /// The first page; `None`: each shop or ERP has its own.
    pub(super) url: Option<&'static str>,
    /// An address of the first page, for whoever has to give it.
    pub(super) example: &'static str,
    /// The path of the list in an answer.
    pub(super) items: Option<&'static str>,
    /// The paths of an item's id.
    pub(super) id: &'static [&'static str],
    /// The path of an item's time.
    pub(super) time: Option<&'static str>,
    /// How the next page is found.
    pub(super) next: PresetNext,
    /// How only items since a time are asked for.
    pub(super) since: Option<PresetSince>,
    /// Header fields that each request has beside the credential.
    pub(super) headers: &'static [(&'static str, &'static str)],
    /// The JSON that is posted; `None`: the list is asked for with `GET`.
    pub(super) body: Option<&'static str>,
    /// After how many items the list ends though it has more; `None`: it does not.
    pub(super) items_max: Option<u32>,
    /// How an item's payload is asked for; `None`: it is the item.
    pub(super) details: Option<&'static ItemDetails>,
    /// Whether nothing is read before a credential was set.
    pub(super) needs_credential: bool,
    /// The flags of `source credential` with which such a list is read, without the secret.
    pub(super) credential: &'static str,
    /// What an item is.
    pub(super) item: PresetItem,
}

/// A request for the payload of each new item, of a list without payloads. Its URL is the list's without the query, and a
/// further segment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ItemDetails {
    /// The path of that segment in an item.
    pub(super) segment: &'static str,
    /// The path of the payload in an answer.
    pub(super) payload: &'static str,
    /// Header fields of the provider's webhook, each with its path in an item.
    pub(super) headers: &'static [(&'static str, &'static str)],
}

/// What an item of a preset's list is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PresetItem {
    /// A webhook of a provider, or an event of the source: the settings say which.
    Either,
    /// A webhook of a provider.
    Webhook,
    /// An event of the source. The type holds where the settings give none.
    Event { event_type: Option<&'static str> },
}

/// How a preset finds the next page.
#[derive(Clone, Copy, Debug)]
pub(super) enum PresetNext {
    /// There is one page.
    None,
    /// The header field `Link`.
    Link,
    /// The link with the relation `next` in a list of the answer.
    Links { path: &'static str },
    /// A text of the answer that is the URL of the next page.
    Url { path: &'static str },
    /// A text of the answer that is sent with the next request.
    Cursor { path: &'static str, parameter: &'static str },
    /// The id of the last item, while a member of the answer is true.
    LastItem { path: &'static str, parameter: &'static str, more: &'static str },
    /// The number of the page.
    Page { parameter: &'static str },
    /// The number of items before the page.
    Offset { parameter: &'static str },
}

/// How a preset asks for items since a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct PresetSince {
    pub(super) parameter: &'static str,
    pub(super) form: SinceForm,
    /// Whether the parameter is a header field.
    pub(super) in_header: bool,
    /// The value of the parameter around the time; `None`: it is the time alone.
    pub(super) text: Option<&'static str>,
}

impl PresetSince {
    const fn new(parameter: &'static str, form: SinceForm) -> Self {
        Self { parameter, form, in_header: false, text: None }
    }

    const fn header(name: &'static str, form: SinceForm) -> Self {
        Self { in_header: true, ..Self::new(name, form) }
    }

    const fn text(self, text: &'static str) -> Self {
        Self { text: Some(text), ..self }
    }
}

const JSON: PresetTerms = PresetTerms {
    url: None,
    example: "https://erp.example/api/orders?per_page=100",
    items: None,
    id: &[],
    time: None,
    next: PresetNext::None,
    since: None,
    headers: &[],
    body: None,
    items_max: None,
    details: None,
    needs_credential: false,
    credential: "--kind bearer",
    item: PresetItem::Either,
};

/// Source: <https://docs.stripe.com/api/events/list> and <https://docs.stripe.com/api/pagination>. The newest come first; `limit`
/// is 1 to 100; events are listed for 30 days.
const STRIPE: PresetTerms = PresetTerms {
    url: Some("https://api.stripe.com/v1/events?limit=100"),
    items: Some("/data"),
    id: &["/id"],
    time: Some("/created"),
    next: PresetNext::LastItem { path: "/id", parameter: "starting_after", more: "/has_more" },
    since: Some(PresetSince::new("created[gte]", SinceForm::UnixSeconds)),
    needs_credential: true,
    item: PresetItem::Webhook,
    ..JSON
};

/// Source: <https://docs.github.com/en/rest/repos/webhooks>: a page has at most 100 deliveries, the newest first, with `id`, `guid`,
/// `event` and `delivered_at`; one delivery has `request.payload`. Deliveries of the last 3 days are listed. A repetition has the
/// `guid` of the first.
const GITHUB: PresetTerms = PresetTerms {
    example: "https://api.github.com/repos/OWNER/REPO/hooks/HOOK/deliveries?per_page=30",
    id: &["/guid"],
    time: Some("/delivered_at"),
    next: PresetNext::Link,
    headers: &[("x-github-api-version", "2022-11-28")],
    details: Some(&ItemDetails {
        segment: "/id",
        payload: "/request/payload",
        headers: &[("x-github-delivery", "/guid"), ("x-github-event", "/event")],
    }),
    needs_credential: true,
    item: PresetItem::Webhook,
    ..JSON
};

/// Source: <https://developer.gocardless.com/api-reference/#events-list-events>. The newest come first; `limit` is 1 to 500; each
/// request names the version of the API.
const GOCARDLESS: PresetTerms = PresetTerms {
    url: Some("https://api.gocardless.com/events?limit=500"),
    items: Some("/events"),
    id: &["/id"],
    time: Some("/created_at"),
    next: PresetNext::Cursor { path: "/meta/cursors/after", parameter: "after" },
    since: Some(PresetSince::new("created_at[gte]", SinceForm::Rfc3339)),
    headers: &[("gocardless-version", "2015-07-06")],
    needs_credential: true,
    item: PresetItem::Webhook,
    ..JSON
};

/// Source: the operation `webhooks-events.list` of
/// <https://github.com/paypal/paypal-rest-api-specifications> (`notifications_webhooks_v1`). Without `start_time` the last 30 days
/// are listed.
const PAYPAL: PresetTerms = PresetTerms {
    url: Some("https://api-m.paypal.com/v1/notifications/webhooks-events?page_size=100"),
    items: Some("/events"),
    id: &["/id"],
    time: Some("/create_time"),
    next: PresetNext::Links { path: "/links" },
    since: Some(PresetSince::new("start_time", SinceForm::Rfc3339Seconds)),
    needs_credential: true,
    credential: "--kind oauth2 --token-url https://api-m.paypal.com/v1/oauth2/token --client-id ID",
    item: PresetItem::Webhook,
    ..JSON
};

/// Source: <https://shopify.dev/docs/api/admin-rest/latest/resources/order> and
/// <https://shopify.dev/docs/api/admin-rest/usage/pagination>. `limit` is 1 to 250; orders of the last 60 days are listed; a
/// request for a further page has no filters beside those in its link.
const SHOPIFY: PresetTerms = PresetTerms {
    example: "https://SHOP.myshopify.com/admin/api/VERSION/orders.json?status=any&limit=250",
    items: Some("/orders"),
    id: &["/id", "/updated_at"],
    time: Some("/updated_at"),
    next: PresetNext::Link,
    since: Some(PresetSince::new("updated_at_min", SinceForm::Rfc3339Seconds)),
    needs_credential: true,
    credential: "--kind api_key --header X-Shopify-Access-Token",
    item: PresetItem::Event { event_type: Some("orders/updated") },
    ..JSON
};

/// Source: <https://woocommerce.github.io/woocommerce-rest-api-docs/#list-all-orders>. `per_page` is 1 to 100; times in members
/// that end with `_gmt` are in UTC and have no zone.
const WOOCOMMERCE: PresetTerms = PresetTerms {
    example: "https://SHOP/wp-json/wc/v3/orders?per_page=100&dates_are_gmt=true",
    id: &["/id", "/date_modified_gmt"],
    time: Some("/date_modified_gmt"),
    next: PresetNext::Page { parameter: "page" },
    since: Some(PresetSince::new("modified_after", SinceForm::Rfc3339Seconds)),
    needs_credential: true,
    credential: "--kind basic --user CONSUMER_KEY",
    item: PresetItem::Event { event_type: Some("order.updated") },
    ..JSON
};

/// Source: <https://docs.mollie.com/reference/list-payments>. The newest come first; `limit` is 1 to 250; nothing is asked for since
/// a time, so that only the newest page is read.
const MOLLIE: PresetTerms = PresetTerms {
    url: Some("https://api.mollie.com/v2/payments?limit=250"),
    items: Some("/_embedded/payments"),
    id: &["/id", "/status"],
    time: Some("/createdAt"),
    needs_credential: true,
    item: PresetItem::Event { event_type: Some("payment.changed") },
    ..JSON
};

/// Source: <https://developer.xero.com/documentation/api/accounting/invoices>: `If-Modified-Since` in UTC, `page` from 1, 100 invoices
/// a page, times like `/Date(1518685950940+0000)/`; a list without a newer one may be answered with 304.
const XERO: PresetTerms = PresetTerms {
    url: Some("https://api.xero.com/api.xro/2.0/Invoices"),
    items: Some("/Invoices"),
    id: &["/InvoiceID", "/UpdatedDateUTC"],
    time: Some("/UpdatedDateUTC"),
    next: PresetNext::Page { parameter: "page" },
    since: Some(PresetSince::header("if-modified-since", SinceForm::IsoDateTime)),
    needs_credential: true,
    credential: "--kind oauth2 --token-url https://identity.xero.com/connect/token --client-id ID --scope accounting.transactions.read",
    item: PresetItem::Event { event_type: Some("invoice.updated") },
    ..JSON
};

/// Source: <https://developers.hubspot.com/docs/api-reference/search/guide>: at most 200 objects a page and 10,000 a search; times in
/// filters are milliseconds. Contacts name their time `lastmodifieddate`.
const HUBSPOT: PresetTerms = PresetTerms {
    example: "https://api.hubapi.com/crm/v3/objects/deals/search",
    items: Some("/results"),
    id: &["/id", "/updatedAt"],
    time: Some("/updatedAt"),
    next: PresetNext::Cursor { path: "/paging/next/after", parameter: "/after" },
    since: Some(PresetSince::new("/filterGroups/0/filters/0/value", SinceForm::UnixMs)),
    body: Some(
        r#"{"limit":100,"filterGroups":[{"filters":[{"propertyName":"hs_lastmodifieddate","operator":"GTE","value":"0"}]}],
            "sorts":[{"propertyName":"hs_lastmodifieddate","direction":"ASCENDING"}]}"#,
    ),
    items_max: Some(10_000),
    needs_credential: true,
    item: PresetItem::Event { event_type: None },
    ..JSON
};

/// Source: <https://www.odoo.com/documentation/19.0/developer/reference/external_api.html>: `POST /json/2/MODEL/search_read` with named
/// arguments; times are in UTC and have no zone.
const ODOO: PresetTerms = PresetTerms {
    example: "https://ERP/json/2/sale.order/search_read",
    id: &["/id", "/write_date"],
    time: Some("/write_date"),
    next: PresetNext::Offset { parameter: "/offset" },
    since: Some(PresetSince::new("/domain/0/2", SinceForm::DateTime)),
    body: Some(
        r#"{"domain":[["write_date",">=","1970-01-01 00:00:00"]],"order":"write_date, id","limit":100,"offset":0}"#,
    ),
    needs_credential: true,
    item: PresetItem::Event { event_type: None },
    ..JSON
};

/// Source: <https://docs.frappe.io/framework/user/en/api/rest>. Times have no zone and are in that of the site.
const ERPNEXT: PresetTerms = PresetTerms {
    example: "https://ERP/api/resource/Sales%20Invoice?fields=[\"*\"]&limit_page_length=100",
    items: Some("/data"),
    id: &["/name", "/modified"],
    time: Some("/modified"),
    next: PresetNext::Offset { parameter: "limit_start" },
    since: Some(
        PresetSince::new("filters", SinceForm::DateTime).text(r#"[["modified",">=","{time}"]]"#),
    ),
    needs_credential: true,
    credential: "--kind api_key --header authorization",
    item: PresetItem::Event { event_type: None },
    ..JSON
};

/// Source: <https://learn.microsoft.com/dynamics365/business-central/dev-itpro/api-reference/v2.0/> and `OData` 4.01, part 2,
/// sections 5.1.1 (`$filter`) and part 1, 11.2.6.7 (`@odata.nextLink`).
const BUSINESS_CENTRAL: PresetTerms = PresetTerms {
    example: "https://api.businesscentral.dynamics.com/v2.0/TENANT/Production/api/v2.0/companies(ID)/salesInvoices",
    items: Some("/value"),
    id: &["/id", "/lastModifiedDateTime"],
    time: Some("/lastModifiedDateTime"),
    next: PresetNext::Url { path: "/@odata.nextLink" },
    since: Some(
        PresetSince::new("$filter", SinceForm::Rfc3339).text("lastModifiedDateTime ge {time}"),
    ),
    needs_credential: true,
    credential: "--kind oauth2 --token-url https://login.microsoftonline.com/TENANT/oauth2/v2.0/token --client-id ID --scope https://api.businesscentral.dynamics.com/.default",
    item: PresetItem::Event { event_type: None },
    ..JSON
};

impl ListPreset {
    /// Its terms.
    pub(super) const fn terms(self) -> &'static PresetTerms {
        match self {
            Self::Json => &JSON,
            Self::Stripe => &STRIPE,
            Self::Github => &GITHUB,
            Self::Gocardless => &GOCARDLESS,
            Self::Paypal => &PAYPAL,
            Self::Shopify => &SHOPIFY,
            Self::Woocommerce => &WOOCOMMERCE,
            Self::Mollie => &MOLLIE,
            Self::Xero => &XERO,
            Self::Hubspot => &HUBSPOT,
            Self::Odoo => &ODOO,
            Self::Erpnext => &ERPNEXT,
            Self::BusinessCentral => &BUSINESS_CENTRAL,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::base::clock::Timestamp;
    use crate::sources::http_list::{AnsweredPage, PageMark};
    use crate::sources::http_settings::{HttpSettings, ListTerms, NextPage};

    /// A page as its provider documents it, with its reading.
    #[derive(Clone)]
    struct Documented {
        preset: ListPreset,
        url: &'static str,
        body: Value,
        link: Option<&'static str>,
        /// The ids of its items.
        ids: &'static [&'static str],
        /// What follows the URL of the first page since 2026-01-31T12:00:00Z.
        since: &'static str,
        /// The URL of the next page, or its end if it begins with the URL of the first page.
        next: &'static str,
    }

    /// The time of each first item.
    const AT: &str = "2026-01-31T11:59:00.000Z";

    fn events_of_providers() -> Vec<Documented> {
        vec![
            Documented {
                preset: ListPreset::Stripe,
                url: "https://api.stripe.com/v1/events?limit=100",
                body: json!({
                    "object": "list", "has_more": true,
                    "data": [{ "id": "evt_2", "created": 1_769_860_740 }, { "id": "evt_1", "created": 1_769_860_000 }],
                }),
                link: None,
                ids: &["evt_2", "evt_1"],
                since: "&created%5Bgte%5D=1769860800",
                next: "&starting_after=evt_1",
            },
            Documented {
                preset: ListPreset::Gocardless,
                url: "https://api.gocardless.com/events?limit=500",
                body: json!({
                    "events": [{
                        "id": "EV123", "created_at": "2026-01-31T11:59:00.000Z", "resource_type": "payments", "action": "confirmed",
                        "links": { "payment": "PM123" },
                    }],
                    "meta": { "cursors": { "before": null, "after": "EV122" }, "limit": 500 },
                }),
                link: None,
                ids: &["EV123"],
                since: "&created_at%5Bgte%5D=2026-01-31T12%3A00%3A00.000Z",
                next: "&after=EV122",
            },
            Documented {
                preset: ListPreset::Paypal,
                url: "https://api-m.paypal.com/v1/notifications/webhooks-events?page_size=100",
                body: json!({
                    "count": 1,
                    "events": [{
                        "id": "8PT597110X687430L", "create_time": "2026-01-31T11:59:00Z",
                        "event_type": "PAYMENT.AUTHORIZATION.CREATED", "resource": {},
                    }],
                    "links": [
                        { "href": "https://api-m.paypal.com/v1/notifications/webhooks-events?x=1", "rel": "self", "method": "GET" },
                        { "href": "https://api-m.paypal.com/v1/notifications/webhooks-events?x=2", "rel": "next", "method": "GET" },
                    ],
                }),
                link: None,
                ids: &["8PT597110X687430L"],
                since: "&start_time=2026-01-31T12%3A00%3A00Z",
                next: "https://api-m.paypal.com/v1/notifications/webhooks-events?x=2",
            },
            Documented {
                preset: ListPreset::Shopify,
                url: "https://shop.myshopify.com/admin/api/2025-10/orders.json?status=any&limit=250",
                body: json!({ "orders": [{ "id": 450_789_469, "updated_at": "2026-01-31T06:59:00-05:00" }] }),
                link: Some(
                    r#"<https://shop.myshopify.com/admin/api/2025-10/orders.json?page_info=a1&limit=250>; rel="next""#,
                ),
                ids: &["450789469:2026-01-31T06:59:00-05:00"],
                since: "&updated_at_min=2026-01-31T12%3A00%3A00Z",
                next: "https://shop.myshopify.com/admin/api/2025-10/orders.json?page_info=a1&limit=250",
            },
        ]
    }

    fn documents_of_shops_and_erps() -> Vec<Documented> {
        vec![
            Documented {
                preset: ListPreset::Woocommerce,
                url: "https://shop.example/wp-json/wc/v3/orders?per_page=100&dates_are_gmt=true",
                body: json!([{ "id": 727, "date_modified_gmt": "2026-01-31T11:59:00", "status": "processing" }]),
                link: None,
                ids: &["727:2026-01-31T11:59:00"],
                since: "&modified_after=2026-01-31T12%3A00%3A00Z",
                next: "&page=2",
            },
            Documented {
                preset: ListPreset::Mollie,
                url: "https://api.mollie.com/v2/payments?limit=250",
                body: json!({
                    "count": 1, "_embedded": { "payments": [
                        { "id": "tr_7UhSN1zuXS", "status": "paid", "createdAt": "2026-01-31T11:59:00+00:00" },
                    ] },
                    "_links": { "next": { "href": "https://api.mollie.com/v2/payments?from=tr_1&limit=250" } },
                }),
                link: None,
                ids: &["tr_7UhSN1zuXS:paid"],
                since: "",
                next: "",
            },
            Documented {
                preset: ListPreset::Erpnext,
                url: "https://erp.example/api/resource/Sales%20Invoice?limit_page_length=100",
                body: json!({ "data": [{ "name": "ACC-SINV-2026-00001", "modified": "2026-01-31 11:59:00.000000" }] }),
                link: None,
                ids: &["ACC-SINV-2026-00001:2026-01-31 11:59:00.000000"],
                since: "&filters=%5B%5B%22modified%22%2C%22%3E%3D%22%2C%222026-01-31%2012%3A00%3A00%22%5D%5D",
                next: "&limit_start=1",
            },
            Documented {
                preset: ListPreset::BusinessCentral,
                url: "https://api.businesscentral.dynamics.com/v2.0/t/Production/api/v2.0/companies(c)/salesInvoices",
                body: json!({
                    "value": [{ "id": "5d115c9c", "lastModifiedDateTime": "2026-01-31T11:59:00Z", "number": "103001" }],
                    "@odata.nextLink": "https://api.businesscentral.dynamics.com/v2.0/t/Production/api/v2.0/companies(c)/salesInvoices?aid=FIN",
                }),
                link: None,
                ids: &["5d115c9c:2026-01-31T11:59:00Z"],
                since: "?%24filter=lastModifiedDateTime%20ge%202026-01-31T12%3A00%3A00.000Z",
                next: "https://api.businesscentral.dynamics.com/v2.0/t/Production/api/v2.0/companies(c)/salesInvoices?aid=FIN",
            },
        ]
    }

    /// Lists that are asked for with more than a query.
    fn lists_with_bodies_headers_and_details() -> Vec<Documented> {
        vec![
            Documented {
                preset: ListPreset::Github,
                url: "https://api.github.com/repos/o/r/hooks/1/deliveries?per_page=30",
                body: json!([{
                    "id": 12_345_678, "guid": "0b989ba4-242f-11e5-81e1-c7b6966d2516", "delivered_at": "2026-01-31T11:59:00Z",
                    "redelivery": false, "status": "OK", "status_code": 200, "event": "issues", "action": "opened",
                }]),
                link: Some(
                    r#"<https://api.github.com/repos/o/r/hooks/1/deliveries?per_page=30&cursor=v1_1>; rel="next""#,
                ),
                ids: &["0b989ba4-242f-11e5-81e1-c7b6966d2516"],
                since: "",
                next: "https://api.github.com/repos/o/r/hooks/1/deliveries?per_page=30&cursor=v1_1",
            },
            Documented {
                preset: ListPreset::Xero,
                url: "https://api.xero.com/api.xro/2.0/Invoices",
                body: json!({ "Invoices": [{ "InvoiceID": "243216c5", "UpdatedDateUTC": "/Date(1769860740000+0000)/" }] }),
                link: None,
                ids: &["243216c5:/Date(1769860740000+0000)/"],
                since: " if-modified-since: 2026-01-31T12:00:00",
                next: "?page=2",
            },
            Documented {
                preset: ListPreset::Hubspot,
                url: "https://api.hubapi.com/crm/v3/objects/deals/search",
                body: json!({
                    "total": 2,
                    "results": [{ "id": "512", "properties": { "dealname": "A" }, "updatedAt": "2026-01-31T11:59:00.000Z" }],
                    "paging": { "next": { "after": "1" } },
                }),
                link: None,
                ids: &["512:2026-01-31T11:59:00.000Z"],
                since: " /filterGroups/0/filters/0/value=\"1769860800000\"",
                next: " /after=\"1\"",
            },
            Documented {
                preset: ListPreset::Odoo,
                url: "https://erp.example/json/2/sale.order/search_read",
                body: json!([{ "id": 7, "name": "S00007", "write_date": "2026-01-31 11:59:00" }]),
                link: None,
                ids: &["7:2026-01-31 11:59:00"],
                since: " /domain/0/2=\"2026-01-31 12:00:00\"",
                next: " /offset=1",
            },
        ]
    }

    fn settings(page: &Documented) -> HttpSettings {
        let mut settings = json!({ "preset": page.preset, "url": page.url });
        if page.preset.terms().item == PresetItem::Webhook {
            settings["provider"] = "any".into();
        }
        serde_json::from_value(settings).unwrap()
    }

    /// A request: its URL, the header field with the time, the members of its body that change.
    fn shown(terms: &ListTerms, mark: Option<&PageMark>, since: Option<Timestamp>) -> String {
        let request = terms.request(mark, since);
        let mut shown = vec![request.url];
        for (name, value) in request.headers.iter().skip(terms.headers.len()) {
            shown.push(format!("{name}: {value}"));
        }
        let body: Option<Value> = request.body.map(|body| serde_json::from_str(&body).unwrap());
        let paths = terms.since.iter().map(|since| since.parameter.as_str());
        for path in paths.chain(terms.next.as_ref().and_then(NextPage::parameter)) {
            let now = body.as_ref().and_then(|body| body.pointer(path));
            let first = terms.body.as_ref().and_then(|body| body.pointer(path));
            if let Some(now) = now.filter(|_| now != first) {
                shown.push(format!("{path}={now}"));
            }
        }
        shown.join(" ")
    }

    #[test]
    fn every_preset_reads_a_page_as_its_provider_documents_it() {
        let pages = [
            events_of_providers(),
            documents_of_shops_and_erps(),
            lists_with_bodies_headers_and_details(),
        ]
        .concat();
        let with_page: Vec<ListPreset> = pages.iter().map(|page| page.preset).collect();
        let all = ListPreset::ALL.iter().filter(|preset| **preset != ListPreset::Json);
        assert!(all.clone().all(|preset| with_page.contains(preset)), "{with_page:?}");
        for page in pages {
            let preset = page.preset;
            let terms = settings(&page).terms().unwrap();
            assert_eq!(
                preset.terms().url.unwrap_or(page.url),
                page.url,
                "{preset}: the documented page is that of the preset"
            );
            let body = page.body.to_string();
            let answered = AnsweredPage {
                body: body.as_bytes(),
                link: page.link,
                is_unchanged: false,
                mark: None,
            };
            let read = terms.read(answered).unwrap();
            let ids: Vec<&str> =
                read.items.iter().map(|item| item.id.as_deref().unwrap()).collect();
            assert_eq!(ids, page.ids, "{preset}");
            assert_eq!(read.items[0].time, Timestamp::parse(AT), "{preset}");
            let since = Timestamp::parse("2026-01-31T12:00:00Z");
            assert_eq!(
                shown(&terms, None, since),
                format!("{}{}", page.url, page.since),
                "{preset}"
            );
            let next = read.next.map(|mark| match mark {
                PageMark::Url(url) => url,
                mark => shown(&terms, Some(&mark), None).replacen(page.url, "", 1),
            });
            assert_eq!(next.unwrap_or_default(), page.next, "{preset}");
        }
    }

    #[test]
    fn an_address_that_everybody_has_for_themselves_is_asked_for_with_an_example() {
        for preset in ListPreset::ALL {
            let terms = preset.terms();
            let read = |list: Value| serde_json::from_value::<HttpSettings>(list).unwrap().terms();
            let without = read(json!({ "preset": preset }));
            match terms.url {
                Some(_) => assert!(without.is_ok(), "{preset}: {without:?}"),
                None => assert!(without.unwrap_err().contains(terms.example), "{preset}"),
            }
        }
    }
}
