"""The troubles of users that have been reported, and the tests that prove how each ends: `report N` is a public report, the others are rows by surface."""

from __future__ import annotations

SERVER = "images/agent_environment/test_server.py"
DOCKER = "runners/test_docker.py"
DOCKER_CLI = "runners/test_docker_troubles.py"
SUITE = "runners/test_conformance.py"
WEB = "test_website_troubles.py"
ROWS: dict[str, list[str]] = {
    "report 1: a half-copied archive": [
        "test_archives.py::TestDamaged::test_cut_off_anywhere", "test_archives.py::TestDamaged::test_any_byte_of_a_layer_or_config",
        "test_archives.py::TestDamaged::test_any_part_missing", "test_archives.py::TestDamaged::test_a_size_that_differs",
        "test_archives.py::test_any_damage_ends_in_an_error_of_ours_or_in_the_same_image",
        "test_assets.py::TestLoad::test_a_damaged_one_leaves_no_name", f"{DOCKER_CLI}::test_a_damaged_archive_is_said_without_any_engine",
    ],
    "report 4: what was loaded": [
        "test_assets.py::TestLoad::test_says_every_reference_and_digest", "test_assets.py::TestLoad::test_the_command",
        "test_archives.py::TestWhole::test_untagged_is_accepted", f"{DOCKER_CLI}::test_several_images_and_none_with_a_name",
    ],
    "report 7: no engine, no permission": [
        f"{DOCKER}::TestNoEngine::test_not_installed", f"{DOCKER}::TestNoEngine::test_no_socket", f"{DOCKER}::TestNoEngine::test_nobody_listens",
        f"{DOCKER}::TestNoEngine::test_not_permitted", f"{DOCKER_CLI}::test_no_engine", "test_user.py::test_docker_is_not_permitted",
    ],
    "report 9: ports": [
        f"{DOCKER}::TestPorts::test_twenty_at_once", f"{DOCKER}::TestPorts::test_taken_between_the_look_and_the_start", f"{SUITE}::test_many_at_once",
        f"{SUITE}::test_a_taken_port_is_a_conflict_that_names_the_holder", f"{SUITE}::test_the_documented_port_when_free_else_a_note",
    ],
    "report 10: a name left by an earlier run": [
        f"{DOCKER}::TestNames::test_one_left_by_an_earlier_run_is_said_with_its_age_and_owner", f"{SUITE}::test_a_name_is_taken_until_it_is_replaced",
        f"{DOCKER_CLI}::test_a_container_that_a_killed_gymctl_left", f"{DOCKER_CLI}::test_a_container_of_somebody_else_with_our_name",
    ],
    "report 11: a start that will never be ready": [
        f"{DOCKER_CLI}::test_it_exits_immediately", f"{DOCKER_CLI}::test_unhealthy_by_its_own_check", f"{DOCKER_CLI}::test_no_server_in_it",
        f"{SUITE}::test_a_server_that_ends_is_seen_and_explained", "test_troubles.py::test_a_local_server_that_ends_at_once",
    ],
    "report 14: Ctrl-C and kill": [
        "test_interrupt.py::test_nothing_is_left_whenever_it_comes", "test_interrupt.py::test_a_second_one_ends_it_at_once_and_says_what_that_leaves",
        "test_interrupt.py::test_killed_by_ci", "test_cli.py::test_a_signal_unwinds_and_says_so", "test_kill.py::test_killed_at_any_moment",
    ],
    "report 17: localhost": [f"{DOCKER_CLI}::test_names_and_proxies_play_no_part"],
    "report 18: proxies": [
        f"{DOCKER_CLI}::test_names_and_proxies_play_no_part", "test_agents.py::test_proxies_do_not_catch_loopback",
        f"{DOCKER}::test_proxies_do_not_disturb",
        "test_troubles.py::test_an_install_uses_the_proxy",
    ],
    "report 20: a disk fills": [
        "test_disks.py::test_no_room_in_the_cache_is_said_before_a_byte_is_copied", "test_disks.py::test_a_cache_that_fills_up_meanwhile",
        "test_disks.py::test_a_full_state_directory", "test_disks.py::test_the_engine_s_disk",
        f"{DOCKER}::test_a_full_disk_is_said_before_the_engine_gets_a_byte",
    ],
    "report 27: pids": [
        "test_kill.py::test_a_foreign_pid_is_not_ours", "test_kill.py::test_a_half_written_record_is_listed_and_can_be_stopped",
        "test_session.py::test_a_server_that_dies_is_told_apart_from_one_that_never_ran",
    ],
    "report 43: state crosses sessions": [
        "images/agent_environment/test_isolation.py::test_canaries", f"{SUITE}::test_sessions_do_not_see_each_other",
        "images/agent_environment/test_mcp.py::test_a_session_is_isolated_and_lasts", "test_troubles.py::test_a_session_s_name_is_never_the_same_twice",
    ],
    "report 45: a verifier's crash is no zero": [
        "test_session.py::test_no_verdict_is_never_a_zero", "test_session.py::test_a_judge_that_fails_gives_no_verdict",
    ],
    "report 46: what is no score": ["test_session.py::test_no_verdict_is_never_a_zero", "test_session.py::test_score_refuses"],
    "report 47: an agent writes its own reward": [
        "test_agents.py::test_tampering_is_no_verdict_and_named", "test_troubles.py::test_what_an_agent_plants_changes_no_verdict",
    ],
    "report 53: a cache for many": [
        "test_cache.py::test_ten_processes_make_it_once", "test_cache.py::test_without_locks_makers_agree",
        "test_cache.py::test_a_killed_maker_leaves_what_gc_removes", "test_disks.py::test_ten_loads_of_one_file_at_once",
        "test_troubles.py::test_who_waits_for_a_lock_says_for_whom", "test_kill.py::test_killed_while_it_waits_for_a_lock_or_holds_one",
    ],
    "report 55: | head": [
        "test_cli.py::test_a_reader_that_goes_is_no_error", "test_terminal.py::test_a_reader_that_goes_loses_no_running_instance",
        "test_terminal.py::test_streams_that_are_closed", "test_terminal.py::test_a_full_disk_under_stdout",
    ],
    "report 57: progress": [
        "test_cli.py::test_progress_is_for_terminals_only", "test_terminal.py::test_no_colors_where_they_are_unwanted",
        "test_terminal.py::test_progress_is_lines_where_nothing_can_be_redrawn",
        "test_terminal.py::test_a_document_in_a_pipe_while_progress_is_on_the_terminal",
    ],
    "report 58: completions": [
        "test_completions.py::test_bash", "test_completions.py::test_zsh", "test_completions.py::test_fish",
        "test_completions.py::test_nothing_is_printed_when_nothing_can_be_known", "test_completions.py::test_completing_loads_no_docker_and_no_httpx",
    ],
    "report 60: no is no boolean": [
        "test_recipe.py::test_yaml_1_2_scalars_stay_text", "test_recipe.py::test_values_that_are_no_text_ask_for_quotes",
        "test_recipe.py::test_a_boolean_key_is_refused",
    ],
    "report 61: octal, sexagesimal": [
        "test_recipe.py::test_yaml_1_2_scalars_stay_text", "test_recipe.py::test_ports_are_strict",
        "test_recipe.py::test_octal_and_hex_are_those_of_yaml_1_2",
    ],
    "report 62: a key twice": [
        "test_recipe.py::test_duplicate_keys_name_both_lines", "images/agent_environment/test_universe.py::test_keys_are_texts_and_there_once",
    ],
    "report 63: anchor bombs": [
        "test_recipe.py::test_an_anchor_bomb_ends_at_once", "test_recipe.py::test_hostile_yaml_is_an_error",
        "test_troubles.py::test_an_anchor_bomb_on_the_command_line",
    ],
    "mcp: tool not found": [
        f"{SERVER}::TestErrors::test_unknown_tool", f"{SERVER}::TestErrors::test_the_wrong_case", "test_troubles.py::test_a_tool_s_troubles",
    ],
    "mcp: invalid or missing parameter": [f"{SERVER}::TestErrors::test_every_fault_of_the_arguments", "test_troubles.py::test_a_tool_s_troubles"],
    "mcp: tool of another or a disabled server": [
        f"{SERVER}::TestErrors::test_the_tool_of_another_server", f"{SERVER}::TestErrors::test_a_disabled_tool",
        "test_troubles.py::test_a_tool_s_troubles",
    ],
    "mcp: data not persisting, wrong data": [
        "test_troubles.py::test_answers_carry_the_assignment_that_served_them", "test_session.py::test_an_answer_of_another_session_is_named",
    ],
    "mcp: state reset unexpectedly": [f"{SERVER}::TestSessions::test_somebody_elses_reset_is_told"],
    "mcp: server unavailable": ["test_troubles.py::test_refused_and_no_answer_are_two_troubles", "test_troubles.py::test_nothing_listens"],
    "mcp: connection time-out": ["test_troubles.py::test_refused_and_no_answer_are_two_troubles"],
    "mcp: internal error": ["test_troubles.py::test_an_internal_error_leads_to_its_line_in_the_log"],
    "website: faulty check": [
        f"{WEB}::test_faulty_checks_are_all_named", f"{WEB}::test_faulty_checks_of_a_whole_episode_are_no_verdict",
        "images/web/test_api.py::test_faulty_checks_are_all_named",
    ],
    "website: database or evaluator failure": [
        f"{WEB}::test_a_function_that_cannot_be_computed_is_no_verdict", f"{WEB}::test_rows_that_cannot_be_read_are_no_verdict",
    ],
    "website: a failed check": [f"{WEB}::test_a_failed_check_shows_what_was_searched", "images/web/test_api.py::test_verifier"],
    "website: session not found": [
        f"{WEB}::test_a_session_that_was_never_reset", "images/web/test_api.py::test_a_session_that_does_not_exist",
        "images/web/test_api.py::test_a_page_without_a_session_says_how_to_make_one",
    ],
    "website: data pack not found": [f"{WEB}::test_a_data_pack_that_is_not_there", "images/web/test_api.py::test_bad_resets"],
    "website: stale data, changes not visible": [
        f"{WEB}::test_a_page_opened_before_a_reset_says_so", f"{WEB}::test_answers_carry_the_session_and_its_version",
        "images/web/test_api.py::test_a_page_opened_before_a_reset_does_nothing", "images/calendr/test_browser.py::test_a_page_opened_before_a_reset_says_so",
    ],
    "website: another session's data": [
        f"{WEB}::test_an_answer_of_another_session_is_named", "images/calendr/test_isolation.py::test_every_address_with_the_ids_of_another_session",
        "images/calendr/test_isolation.py::test_a_form_of_another_sessions_page", "test_website.py::test_a_failed_action_says_what_was_there",
    ],
    "website: wrong session, missing sessionId": [
        f"{WEB}::test_a_session_id_that_cannot_be_one", f"{WEB}::test_no_session_id_is_named", "images/web/test_api.py::test_bad_resets",
    ],
    "website: an operation of the same session still open": [
        f"{WEB}::test_a_session_that_is_busy_names_its_operation",
        "images/web/test_api.py::test_a_request_waits_for_an_unfinished_one_and_then_says_which",
    ],
    "docker: image not found": [f"{DOCKER_CLI}::test_an_image_that_is_not_there"],
    "docker: load failed, tar corrupted": [
        "test_archives.py::TestDamaged::test_cut_off_anywhere", f"{DOCKER_CLI}::test_a_damaged_archive_is_said_without_any_engine",
    ],
    "docker: wrong version": [
        f"{DOCKER_CLI}::test_another_version_than_the_recipe_pins", "test_assets.py::TestLoad::test_warns_before_a_name_goes_to_another_image",
    ],
    "docker: port conflict": [
        f"{DOCKER}::TestPorts::test_one_that_an_instance_holds", f"{DOCKER}::TestPorts::test_one_that_a_process_holds",
        f"{DOCKER}::TestPorts::test_one_that_a_foreign_container_holds", f"{SUITE}::test_a_taken_port_is_a_conflict_that_names_the_holder",
    ],
    "docker: exits immediately": [f"{DOCKER_CLI}::test_it_exits_immediately"],
    "docker: permission denied": [
        f"{DOCKER}::TestNoEngine::test_not_permitted", "test_user.py::test_docker_is_not_permitted", "test_user.py::test_a_real_engine",
    ],
    "docker: out of memory": [f"{DOCKER_CLI}::test_out_of_memory", f"{DOCKER}::TestLimits::test_out_of_memory_names_the_limit_and_the_option"],
    "docker: connection refused, DNS": [
        f"{DOCKER_CLI}::test_names_and_proxies_play_no_part", f"{DOCKER}::TestNoEngine::test_tcp_refused_and_dropped_are_two_answers",
    ],
    "docker: engine older than 20.10": [f"{DOCKER}::TestNoEngine::test_older_than_20_10"],
    "desktop: initialization failed": [
        "test_setup.py::test_a_step_that_fails_says_which_it_was_and_why", "test_setup.py::test_every_fault_is_said_before_anything_is_done",
        "test_setup.py::test_a_guest_that_has_gone_is_no_fault_of_a_step", "test_desktop_tasks.py::test_a_setup_that_fails_says_which_step",
    ],
    "desktop: evaluator failed": [
        "test_evaluators.py::test_an_expected_file_that_cannot_be_had_is_no_verdict_and_named", "test_evaluators.py::test_a_missing_result_fails_and_is_named",
        "test_evaluators.py::test_a_command_that_hangs_or_is_not_there_is_no_verdict", "test_evaluators.py::test_a_time_out_is_no_verdict_and_nothing_is_left",
        "test_evaluators.py::test_a_crash_is_no_verdict", "test_evaluators.py::test_faults_are_exit_9_and_nothing_is_done",
    ],
    "desktop: unresponsive": ["test_desktop.py::test_a_guest_that_hangs_says_what_still_answers"],
    "desktop: noVNC, 5000, 5900 not reachable": [
        "test_desktop.py::test_a_wrong_secret_and_a_dead_desktop_are_two_troubles",
        "test_view.py::test_refused_and_no_display_are_said_by_the_command_and_by_the_page", "test_view.py::test_a_wrong_vnc_password_is_said",
        "test_view.py::test_an_address_lets_one_in_once", "test_view.py::test_what_is_not_installed_is_named_and_vnc_works_anyway",
        "test_view.py::test_a_recipe_without_vnc",
    ],
    "desktop: black, empty or stale screenshot": [
        "test_desktop.py::test_a_screen_that_sleeps_or_is_of_one_color_says_so", "test_desktop.py::test_change_and_quiet_are_waited_for",
    ],
    "desktop: low quality": ["test_desktop.py::test_a_screenshot_with_any_action"],
    "ps and bundles": [f"{SUITE}::test_ps_and_logs", f"{SUITE}::test_a_bundle_holds_what_a_maintainer_needs_and_no_secret"],
}  # fmt: skip
REPORTS = (1, 4, 7, 9, 10, 11, 14, 17, 18, 20, 27, 43, 45, 46, 47, 53, 55, 57, 58, 60, 61, 62, 63)
"""The numbers of the public reports whose part exists."""
