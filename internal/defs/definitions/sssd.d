/*
 * SSSD, the System Security Services Daemon: Debian's, Fedora's and RHEL's, in
 * libsss_util.so, libsss_ldap_common.so and sssd_be. Probes that are not here
 * have no arguments.
 * https://github.com/SSSD/sssd/blob/master/src/systemtap/sssd_probes.d
 */
enum ldap_scope { LDAP_SCOPE_BASE, LDAP_SCOPE_ONELEVEL, LDAP_SCOPE_SUBTREE };

provider sssd {
	probe sysdb_transaction_start(int nesting);
	probe sysdb_transaction_commit_before(int nesting);
	probe sysdb_transaction_commit_after(int nesting);
	probe sysdb_transaction_cancel(int nesting);

	probe sdap_acct_req_send(int entry_type, int filter_type, char *filter, char *extra);
	probe sdap_acct_req_recv(int entry_type, int filter_type, char *filter, char *extra);
	probe sdap_search_user_send(const char *filter);
	probe sdap_search_user_save_begin(const char *filter);
	probe sdap_search_user_save_end(const char *filter);
	probe sdap_search_user_recv(const char *filter);
	probe sdap_get_generic_ext_send(const char *base, ldap_scope scope, const char *filter,
		const char **attributes);
	probe sdap_get_generic_ext_recv(const char *base, ldap_scope scope, const char *filter);
	probe sdap_parse_entry(const char *attribute, const char *value, int value_length);
	probe sdap_deref_search_send(const char *base, const char *attribute);
	probe sdap_deref_search_recv(const char *base, const char *attribute);
	probe sdap_nested_group_process_send(const char *group);
	probe sdap_nested_group_process_recv(const char *group);

	probe dp_req_send(const char *domain, const char *request, int target, int method);
	probe dp_req_done(const char *request, int target, int method, int error,
		const char *error_text);
};

#pragma gousdt when sssd:sysdb_transaction_start a transaction of the cache starts
#pragma gousdt when sssd:sysdb_transaction_commit_before a transaction of the cache starts to commit
#pragma gousdt when sssd:sysdb_transaction_commit_after a transaction of the cache has committed
#pragma gousdt when sssd:sysdb_transaction_cancel a transaction of the cache is cancelled
#pragma gousdt when sssd:sdap_acct_req_send an account starts to be looked up in LDAP
#pragma gousdt when sssd:sdap_acct_req_recv an account was looked up in LDAP
#pragma gousdt when sssd:sdap_search_user_send a search for users starts
#pragma gousdt when sssd:sdap_search_user_save_begin users that were found start to be saved
#pragma gousdt when sssd:sdap_search_user_save_end users that were found are saved
#pragma gousdt when sssd:sdap_search_user_recv a search for users is done
#pragma gousdt when sssd:sdap_get_generic_ext_send an LDAP search starts
#pragma gousdt when sssd:sdap_get_generic_ext_recv an LDAP search is done
#pragma gousdt when sssd:sdap_parse_entry an attribute of an LDAP entry is read
#pragma gousdt when sssd:sdap_deref_search_send an LDAP search that follows references starts
#pragma gousdt when sssd:sdap_deref_search_recv an LDAP search that follows references is done
#pragma gousdt when sssd:sdap_nested_group_process_send the groups in a group start to be resolved
#pragma gousdt when sssd:sdap_nested_group_process_recv the groups in a group are resolved
#pragma gousdt when sssd:dp_req_send a request to a provider of data starts
#pragma gousdt when sssd:dp_req_done a request to a provider of data is done
